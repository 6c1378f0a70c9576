"""Owned GPUs and spot overflow on Philly: dollars of `priced` against Starburst's waiting rules.

Prices and availability are those of V100 in five zones, February to April 2023. The owned GPUs
are too few for the load. Starburst knows all durations and no tenants; its rules wait a constant
time, or one in proportion to GPUs × duration. `priced` knows no tenants either, and durations or
not. Each rule is compared with `priced` at the same mean completion time.
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
from benchmarks.overflow_replay import OverflowReplay, SpotRecord, replay_starburst
from benchmarks.results import Figure
from costopt.backtesting.fleet.replay import ReplaySettings
from costopt.optimize.rounds.gangs import GangTable, SpeedCurve
from costopt.optimize.rounds.priced import PricedPolicy
from costopt.workload.formats import import_workload

SPOT = "aws_v100_2023_price_avail_5zones.csv.gz"
STEP_S = 195.0
START_S = 300.0
Point = tuple[float, float]
"""Mean completion time and dollars."""
BEGIN_AT = datetime(2017, 10, 2, tzinfo=UTC)
OWNED_SHARE = 0.7
"""Of the mean demand."""
WORTH_USD = (0.0, 1.0, 3.0, 6.0, 20.0)
CONSTANT_H = (0.0, 0.5, 2.0, 8.0, 64.0)
WEIGHTED = (0.05, 0.1, 0.25, 0.5, 1.0, 4.0)


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
    waits = {f"wait {hours:g} h": np.full(len(work.jobs), hours * 3600) for hours in CONSTANT_H}
    waits |= {f"wait {factor:g} × GPU-time": factor * asked_s for factor in WEIGHTED}
    rules: dict[str, Point] = {}
    for name, wait_s in waits.items():
        end_s, usd = replay_starburst(work, sum(nodes), spot, wait_s)
        rules[name] = float((end_s - work.submit_s).mean()), usd
        yield f"Starburst, {name}: mean", rules[name][0], "s"
        yield f"Starburst, {name}: dollars", usd, "$"
    for note, curve, known in (
        ("no growth, work declared", SpeedCurve(grow=1), True),
        ("no growth", SpeedCurve(grow=1), False),
        ("growth, work declared", SpeedCurve(), True),
        ("growth", SpeedCurve(), False),
    ):
        options = [curve.options(job.gpus, None, None) for job in work.jobs]
        table = GangTable.of(options, work.gpus.tolist())
        ours: list[Point] = []
        for worth in WORTH_USD:
            settings = ReplaySettings(knows_work=known)
            replay = OverflowReplay(work, before, table, nodes, PricedPolicy(), settings)
            replay.spot, replay.worth_usd = spot, worth
            ours.append((float((replay.run().end_s - work.submit_s).mean()), replay.overflow_usd))
            yield f"priced, {note}, ${worth:g} an hour: mean", ours[-1][0], "s"
            yield f"priced, {note}, ${worth:g} an hour: dollars", ours[-1][1], "$"
        for name, rule in rules.items():
            yield f"priced, {note}: dollars × Starburst's, {name}", ratio(ours, rule), ""


def ratio(ours: list[Point], rule: Point) -> float:
    """Return our dollars over a rule's at its mean time; infinite where none of ours is as early.

    Between two settings lies the straight line, which is above what one in between gives.
    """
    mean_s, usd = np.array(sorted(ours)).T
    return float(np.interp(rule[0], mean_s, usd, left=np.inf)) / rule[1]


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
