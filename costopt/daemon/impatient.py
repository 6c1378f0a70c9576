"""uvicorn's connections, without the patience for clients that never finish a request's head."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_WITHIN_S = 15.0


class ImpatientProtocol(H11Protocol):
    """Closes a connection on which no request has begun ``HEAD_WITHIN_S`` after it was made or
    after the answer before, so that idle clients cannot use up all connections."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As uvicorn's."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._wait_for_head()

    def on_response_complete(self) -> None:
        """As uvicorn's."""
        super().on_response_complete()
        self._wait_for_head()

    def _wait_for_head(self) -> None:
        self.loop.call_later(HEAD_WITHIN_S, self._close_if_idle_since, self.cycle)

    def _close_if_idle_since(self, cycle: Any) -> None:
        idle = self.cycle is cycle and (cycle is None or cycle.response_complete)
        if idle and not self.transport.is_closing():
            self.transport.close()
