"""Numbers on the command lines of processes on nodes: in bounds, or refused with the bounds."""

from __future__ import annotations

import argparse
from collections.abc import Callable

MIN_INTERVAL_S = 0.01
"""Shorter ones would have a process do nothing else."""
DAY_S = 86_400.0
MAX_GIB = 1e6


def number_between(least: float, most: float) -> Callable[[str], float]:
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


interval_s = number_between(MIN_INTERVAL_S, DAY_S)
"""Seconds from one look, beat or sending to the next."""
duration_s = number_between(0.0, DAY_S)
"""Seconds that something may take."""
gib = number_between(0.0, MAX_GIB)
