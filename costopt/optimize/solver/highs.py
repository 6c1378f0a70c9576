"""HiGHS with fixed options, and without its output on stdout."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

_REDIRECTING = Lock()


def new_highs(**options: Any) -> Any:
    """Return a solver that prints nothing and repeats its results, with these options besides."""
    import highspy

    # HiGHS prints its name and licence as it is constructed (from 1.16 on), before an option can
    # be set.
    with _discarded_stdout():
        highs = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in {"output_flag": False, "random_seed": 0, "threads": 1, **options}.items():
        highs.setOptionValue(option, value)
    return highs


@contextmanager
def _discarded_stdout() -> Iterator[None]:
    """Discard what is written to file descriptor 1, where a library in C or C++ prints."""
    with _REDIRECTING:
        try:
            stdout = os.dup(1)
        except OSError:  # the process has no stdout
            yield
            return
        nowhere = os.open(os.devnull, os.O_WRONLY)
        # C's printf buffers: what came before is not ours to discard, what comes now is.
        flush = ctypes.CDLL(None).fflush
        flush(None)
        try:
            os.dup2(nowhere, 1)
            yield
        finally:
            flush(None)
            os.dup2(stdout, 1)
            os.close(nowhere)
            os.close(stdout)
