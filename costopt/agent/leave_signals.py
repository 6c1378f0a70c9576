"""The signals that tell an agent to leave."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def exit_on_signals(leave: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT call ``leave``; only the main thread may say so, others hear none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [signal.signal(number, lambda *_: leave()) for number in SIGNALS]
    try:
        yield
    finally:
        for number, action in zip(SIGNALS, before, strict=True):
            signal.signal(number, action)
