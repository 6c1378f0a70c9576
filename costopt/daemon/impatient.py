"""uvicorn's connections, without the patience for clients that neither ask nor listen."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_WITHIN_S = 15.0
READ_WITHIN_S = 30.0


class ImpatientProtocol(H11Protocol):
    """Closes a connection on which no request has begun ``HEAD_WITHIN_S`` after it was made or
    after the answer before, or whose client has not taken what was sent for ``READ_WITHIN_S``, so
    that idle clients cannot use up all connections."""

    _gives_up: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As uvicorn's."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._wait_for_head()

    def on_response_complete(self) -> None:
        """As uvicorn's."""
        super().on_response_complete()
        self._wait_for_head()

    def pause_writing(self) -> None:
        """As uvicorn's; called where more waits to be sent than the transport cares to hold."""
        super().pause_writing()
        self._gives_up = self.loop.call_later(READ_WITHIN_S, self.transport.abort)

    def resume_writing(self) -> None:
        """As uvicorn's."""
        super().resume_writing()
        self._gives_up.cancel()

    def _wait_for_head(self) -> None:
        self.loop.call_later(HEAD_WITHIN_S, self._close_if_idle_since, self.cycle)

    def _close_if_idle_since(self, cycle: Any) -> None:
        idle = self.cycle is cycle and (cycle is None or cycle.response_complete)
        if idle and not self.transport.is_closing():
            self.transport.close()
