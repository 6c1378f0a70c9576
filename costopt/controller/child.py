"""What a process that another one of ours has spawned does first."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading


def exit_with_parent() -> None:
    """Ctrl-C is the parent's affair, and a process without its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
