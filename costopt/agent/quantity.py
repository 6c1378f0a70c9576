"""Numbers on the command lines of processes on nodes: in bounds, or refused with the bounds."""

from __future__ import annotations

import argparse
from collections.abc import Callable

LEAST_PAUSE_S = 0.01
"""Shorter ones would have a process do nothing else."""
DAY_S = 86_400.0
MOST_GIB = 1e6


def between(least: float, most: float) -> Callable[[str], float]:
    """For ``type=`` of argparse: a number from ``least`` to ``most``, both allowed."""

    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(
                f"expected a number from {least:g} to {most:g}, got {text!r}"
            )
        return value

    return number


pause_s = between(LEAST_PAUSE_S, DAY_S)
"""Seconds from one look, beat or sending to the next."""
length_s = between(0.0, DAY_S)
"""Seconds that something may take."""
gib = between(0.0, MOST_GIB)
