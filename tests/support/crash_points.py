"""Which of the points of an exhaustive test are tried: a fifth of them, all with ``make soak``."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

EVERY = max(1, round(1 / float(os.environ.get("COSTOPT_CRASHES_SHARE", "0.2"))))
T = TypeVar("T")


def _commit() -> int:
    """Return the commit's hash as a number, 0 without Git."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return 0
    return int(done.stdout.strip() or "0", 16)


FIRST = _commit() % EVERY


def crash_points(points: Iterable[T]) -> Iterator[T]:
    """Return every ``EVERY``-th of the points; the commit chooses which is the first."""
    return islice(points, FIRST, None, EVERY)
