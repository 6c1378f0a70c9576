"""uvicorn's connections, without the patience for clients that neither ask nor listen."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_TIMEOUT_S = 15.0
SEND_TIMEOUT_S = 30.0
MAX_CONNECTIONS = 200


class IdleTimeoutProtocol(H11Protocol):
    """Closes a connection on which no request has begun ``HEADER_TIMEOUT_S`` after it was made or
    after the answer before, or whose client has not taken what was sent for ``SEND_TIMEOUT_S``, so
    that idle clients cannot use up all connections.

    Of more than ``MAX_CONNECTIONS`` it closes the one whose client has kept it waiting longest, for
    a request, for the rest of one, or to take its answer. One that is worked on stays.
    """

    _gives_up: asyncio.TimerHandle
    _waits_since: float

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As uvicorn's."""
        super().connection_made(transport)  # type: ignore[arg-type]
        if len(self.connections) > MAX_CONNECTIONS:
            self._make_room()
        self._wait_for_head()

    def on_response_complete(self) -> None:
        """As uvicorn's."""
        super().on_response_complete()
        self._wait_for_head()

    def pause_writing(self) -> None:
        """As uvicorn's; called where more waits to be sent than the transport cares to hold."""
        super().pause_writing()
        self._gives_up = self.loop.call_later(SEND_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """As uvicorn's."""
        super().resume_writing()
        self._gives_up.cancel()

    @property
    def _waits_for_client(self) -> bool:
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY) or self.flow.write_paused

    def _make_room(self) -> None:
        others: list[Any] = [each for each in self.connections if each is not self]
        waiting = [each for each in others if each._waits_for_client]
        if waiting:
            longest = min(waiting, key=lambda each: each._waits_since)
            self.connections.discard(longest)
            longest.transport.abort()

    def _wait_for_head(self) -> None:
        self._waits_since = self.loop.time()
        self.loop.call_later(HEADER_TIMEOUT_S, self._close_if_idle_since, self.cycle)

    def _close_if_idle_since(self, cycle: Any) -> None:
        idle = self.cycle is cycle and (cycle is None or cycle.response_complete)
        if idle and not self.transport.is_closing():
            self.transport.close()
