"""How much of an exhaustive test is run: a fifth, chosen by the commit; all of it every night."""

from __future__ import annotations

import math
import os
import random
import subprocess
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

import pytest

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


COMMIT = _commit()


def crash_points(points: Iterable[T]) -> Iterator[T]:
    """Return every ``EVERY``-th of the points; the commit chooses which is the first."""
    return islice(points, COMMIT % EVERY, None, EVERY)


def left_out(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Return the cases that are not run of tests with the marker ``exhaustive``.

    Tests whose markers have the same argument count as the cases of one test.
    """
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        marker = item.get_closest_marker("exhaustive")
        if marker is not None:
            name = marker.args[0] if marker.args else item.nodeid.split("[")[0]
            tests.setdefault(name, []).append(item)
    found: set[pytest.Item] = set()
    for name, cases in tests.items():
        runs = random.Random(f"{COMMIT} {name}").sample(cases, math.ceil(len(cases) / EVERY))
        found |= set(cases) - set(runs)
    return found
