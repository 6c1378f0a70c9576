"""A call of a test cloud that is carried out and not answered: when a process is killed there."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any

HELD_AT_MOST_S = 30.0


class HeldCall:
    """The ``nth`` call for which ``changes`` holds is answered only when it is released."""

    def __init__(
        self, answer: Callable[..., Any], changes: Callable[[Any], bool], nth: int
    ) -> None:
        self._answer = answer
        self._changes = changes
        self._nth = nth
        self.count = 0
        self.reached = Event()
        self.released = Event()

    def __call__(self, call: Any, *more: Any) -> Any:
        """Answer a call."""
        reply = self._answer(call, *more)
        if self._changes(call):
            self.count += 1
            if self.count == self._nth:
                self.reached.set()
                self.released.wait(HELD_AT_MOST_S)
        return reply
