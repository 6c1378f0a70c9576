"""Owned GPUs and spot overflow on Philly: dollars of `priced` against Starburst's waiting rules.

Prices and availability are those of V100 in five zones, February to April 2023. The owned GPUs
are too few for the load, so that every policy must overflow. Starburst knows all durations; its
rules wait a constant time, or one in proportion to GPUs × duration. The best of them is the one
with the least dollars at the mean completion time of `priced`, between the points of its curve.
"""

from __future__ import annotations

import csv
import gzip
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks.fleet_replay import PHILLY, TINY_TENANTS
from benchmarks.results import Figure
from costopt.backtesting.fleet.overflow import OverflowReplay, SpotRecord, replay_starburst
from costopt.backtesting.fleet.policies import FleetTrial
from costopt.domain.cluster import Cluster
from costopt.optimize.rounds.gangs import GangTable, SpeedCurve
from costopt.optimize.rounds.priced import PricedPolicy
from costopt.workload.formats import import_workload

SPOT = "aws_v100_2023_price_avail_5zones.csv.gz"
STEP_S = 195.0
START_S = 300.0
BEGIN_AT = datetime(2017, 10, 2, tzinfo=UTC)
OWNED_SHARE = 0.7
"""Of the mean demand."""
WORTH_USD = (1.0, 2.0, 4.0)
CONSTANT_H = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
WEIGHTED = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)


def run(days: float = 14.0) -> Iterator[Figure]:
    """Yield dollars and mean completion times, and their ratio at equal time."""
    data = os.environ.get("COSTOPT_DATA")
    if data is None:
        print("COSTOPT_DATA is not set: no recorded cluster", file=sys.stderr)
        return
    (path,) = sorted(Path(data).glob(PHILLY))[:1]
    recorded, _ = import_workload(path, "csv", start_at=datetime(2017, 10, 1, tzinfo=UTC))
    tiny = [name for name in TINY_TENANTS if name in recorded.tenants]
    work, before = recorded.without_tenants(tiny).window(BEGIN_AT, days)
    load = float((work.gpus * work.duration_s).sum() / (days * 86_400))
    nodes = (8,) * round(OWNED_SHARE * load / 8)
    yield "owned GPUs", float(sum(nodes)), ""
    spot = spot_record(Path(data) / SPOT)
    asked_s = work.gpus * work.duration_s
    waits = [np.full(len(work.jobs), hours * 3600) for hours in CONSTANT_H]
    waits += [factor * asked_s for factor in WEIGHTED]
    rules = []
    for wait_s in waits:
        end_s, usd = replay_starburst(work, sum(nodes), spot, wait_s)
        rules.append((float((end_s - work.submit_s).mean()), usd))
    curves = (rules[: len(CONSTANT_H)], rules[len(CONSTANT_H) :])
    yield "Starburst, no wait: mean", rules[0][0], "s"
    yield "Starburst, no wait: dollars", rules[0][1], "$"
    trial = FleetTrial(work, before, Cluster("owned", nodes), days)
    for growth, curve in (("", SpeedCurve()), (", no growth", SpeedCurve(grow=1))):
        options = [curve.options(job.gpus, None, None) for job in work.jobs]
        for worth in WORTH_USD:
            table = GangTable.of(options, work.gpus.tolist())
            replay = OverflowReplay(
                work, before, table, nodes, PricedPolicy(), trial.settings, trial.partitions
            )
            replay.spot, replay.worth_usd = spot, worth
            mean_s = float((replay.run().end_s - work.submit_s).mean())
            label = f"priced{growth}, ${worth:g} an hour"
            yield f"{label}: mean", mean_s, "s"
            yield f"{label}: dollars", replay.overflow_usd, "$"
            best = min(usd_at(mean_s, points) for points in curves)
            yield f"{label}: dollars × Starburst's best", replay.overflow_usd / best, ""


def usd_at(mean_s: float, points: list[tuple[float, float]]) -> float:
    """Return a rule's dollars at a mean time; its most where it cannot be as early."""
    ordered = sorted(points)
    times, usd = zip(*ordered, strict=True)
    return float(np.interp(mean_s, times, usd))


def spot_record(path: Path) -> SpotRecord:
    """Return the recorded prices of all zones, and when they had capacity."""
    with gzip.open(path, "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    zones = [name.removesuffix("_avail") for name in rows[0] if name.endswith("_avail")]
    prices = [
        [float(row[f"{z}_price"]) if row[f"{z}_avail"] == "1" else np.nan for z in zones]
        for row in rows
    ]
    return SpotRecord.of(STEP_S, np.array(prices), START_S)


if __name__ == "__main__":
    for figure in run(float(sys.argv[1]) if len(sys.argv) > 1 else 14.0):
        print(figure, flush=True)
