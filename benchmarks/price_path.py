"""Hourly spot prices as shares of the list price: recorded where the data lie, else made up.

Recorded: the changes of Google Cloud's list prices of spot nodes, 2022 to 2026, one path for each
machine type and region. They change every few weeks, so a recorded week is played in an hour: the
sizes and the order of the changes are real, their pace is not. A path begins at a random week and
goes round. Made up: a walk that changes about every fifth hour, by a few per cent, around a third
of the list price.
"""

from __future__ import annotations

import csv
import gzip
import os
import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

FILE = "gcp_gpu_spot_history_2022-2026.csv.gz"

RECORDED_AS = {
    "A100-SXM4-40GB": ("a2-highgpu-8g",),
    "A100-SXM4-80GB": ("a2-ultragpu-8g",),
    "H100-SXM5-80GB": ("a3-highgpu-8g",),
    "H200-SXM-141GB": ("a3-megagpu-8g",),
    "L4": ("g2-standard-96",),
}
"""Whose record stands for a GPU model; no spot prices of H200 nodes are recorded."""


@dataclass(frozen=True, slots=True)
class PricePaths:
    """Weekly shares of the list price by GPU model; none where prices are made up."""

    source: str
    weekly: Mapping[str, tuple[tuple[float, ...], ...]]

    def hourly(self, gpu_model: str, hours: int, rng: random.Random) -> tuple[float, ...]:
        """Shares of the list price, one for each hour."""
        recorded = self.weekly.get(gpu_model)
        if not recorded:
            return _made_up(hours, rng)
        path = rng.choice(recorded)
        first = rng.randrange(len(path))
        return tuple(path[(first + hour) % len(path)] for hour in range(hours))


def price_paths() -> PricePaths:
    """The recorded paths in the folder that COSTOPT_DATA names, else made-up ones."""
    data = os.environ.get("COSTOPT_DATA")
    if data is None:
        return PricePaths("made up: COSTOPT_DATA is unset", {})
    changes: dict[tuple[str, str], list[tuple[date, float]]] = defaultdict(list)
    with gzip.open(Path(data) / FILE, "rt", encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            if row["spot_usd_h"] and row["on_demand_usd_h"]:
                share = float(row["spot_usd_h"]) / float(row["on_demand_usd_h"])
                when = date.fromisoformat(row["date"])
                changes[row["machine_type"], row["region"]].append((when, share))
    weekly = {
        model: tuple(
            _weekly(sorted(found))
            for (machine, _), found in sorted(changes.items())
            if machine in machines and len(found) > 1
        )
        for model, machines in RECORDED_AS.items()
    }
    return PricePaths("recorded list prices of Google Cloud, a week played in an hour", weekly)


def _weekly(changes: list[tuple[date, float]]) -> tuple[float, ...]:
    days = [day for day, _ in changes]
    weeks = max(1, (days[-1] - days[0]).days // 7 + 1)
    starts = [days[0] + timedelta(weeks=week) for week in range(weeks)]
    return tuple(changes[bisect_right(days, start) - 1][1] for start in starts)


def _made_up(hours: int, rng: random.Random) -> tuple[float, ...]:
    share, shares = rng.uniform(0.2, 0.5), []
    for _ in range(hours):
        if rng.random() < 0.2:
            share = min(0.9, max(0.1, share + 0.2 * (0.33 - share) + rng.gauss(0, 0.04)))
        shares.append(share)
    return tuple(shares)
