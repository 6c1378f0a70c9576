"""Planning whole fleets over time: pools × hourly slots × jobs, up to 2000×168×200."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence

from benchmarks.price_path import price_paths

SIZES = (
    "50x48x1",
    "200x72x1",
    "500x168x1",
    "2000x168x1",
    "200x72x10",
    "500x168x50",
    "2000x168x200",
)
TIME_LIMIT_S = 10.0

PATIENCE = 20
"""Time limits after which a size is given up."""


def run(
    sizes: Sequence[str] = SIZES, time_limit_s: float = TIME_LIMIT_S
) -> Iterator[tuple[str, float, str]]:
    """(name, value, unit) of each measurement, as each is made."""
    print(f"  prices: {price_paths().source}")
    for size in sizes:
        for label, value, unit in _measured(size, time_limit_s):
            yield f"{size}: {label}", value, unit


def _measured(size: str, time_limit_s: float) -> list[tuple[str, float, str]]:
    patience_s = PATIENCE * time_limit_s
    command = [sys.executable, "-m", "benchmarks.fleet_size", size, str(time_limit_s)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=patience_s, check=False
        )
    except subprocess.TimeoutExpired:
        print(f"  {size}: given up after {patience_s:g} s")
        return []
    if done.returncode != 0:
        print(f"  {size}: failed: {done.stderr.strip().splitlines()[-1:]}")
        return []
    return [(label, value, unit) for label, value, unit in json.loads(done.stdout)]
