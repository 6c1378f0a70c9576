"""Signals that ask a process to stop, handled without a deadlock.

Python calls a handler between any two instructions of the main thread, also while that thread holds
a lock, as ``Event.wait`` does. So a handler sets attributes or writes to a pipe; everything else is
done by a thread that reads the pipe, or by the main thread when it polls.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Handler = Callable[[int, FrameType | None], None]
BYTES = bytes(range(256))


@contextmanager
def install_handler(
    handler: Handler, numbers: Iterable[signal.Signals] = STOP_SIGNALS
) -> Iterator[None]:
    """Have Python call ``handler`` while the context lasts; it may only set attributes.

    What the parent set this process to ignore, as nohup does with SIGHUP, stays ignored. Python
    handles signals in the main thread only: in any other, none is handled.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in numbers}
    for number, known in before.items():
        if known is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, known in before.items():
            signal.signal(number, known)


@contextmanager
def handle_stop_signals(
    action: Callable[[int], None], numbers: Iterable[signal.Signals] = STOP_SIGNALS
) -> Iterator[None]:
    """Call ``action``, in a thread of its own, with the number of each stop signal while the
    context lasts. It may take locks."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)  # a handler that waits for a full pipe would hang the process

    def wake(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signals call it
        try:  # noqa: SIM105 - suppress() would be a call
            os.write(writer, BYTES[number : number + 1])
        except BlockingIOError:
            pass

    thread = threading.Thread(target=_act, args=(reader, action), name="stop-signals", daemon=True)
    thread.start()
    try:
        with install_handler(wake, numbers):
            yield
    finally:
        os.close(writer)
        thread.join()
        os.close(reader)


def _act(reader: int, action: Callable[[int], None]) -> None:
    while received := os.read(reader, 1):
        action(received[0])
