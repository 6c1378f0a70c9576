"""Recorded clusters replayed: what one shared cluster needs against partitions, by `priced`.

Philly and Kalos from COSTOPT_DATA (docs/data.md). Weeks that the data lack are left out, and named.
Parameters of the policy were chosen on 2 to 15 October 2017 only.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks.results import Figure
from costopt.backtesting.fleet.figures import PolicyFigures
from costopt.backtesting.fleet.policies import FleetTrial, replay_fleet
from costopt.backtesting.fleet.replay import ReplaySettings
from costopt.domain.cluster import Cluster
from costopt.domain.errors import WorkloadError
from costopt.optimize.rounds.durations import DurationHistory
from costopt.optimize.rounds.gangs import GangTable, SpeedCurve
from costopt.optimize.rounds.jobs import RoundJobs
from costopt.optimize.rounds.priced import PricedPolicy
from costopt.workload.formats import import_workload
from costopt.workload.workload import Workload

PHILLY = "clusters/philly_2017*.csv.gz"
KALOS = "clusters/acme_kalos_completed_2023.csv.gz"
TINY_TENANTS = ("23dbec", "51b7ef", "925e2b", "795a4c")
"""18 jobs together."""
FORTNIGHTS = {
    "Philly 2 to 15 Oct (tuned on)": (datetime(2017, 10, 2, tzinfo=UTC), 600),
    "Philly 16 to 29 Oct": (datetime(2017, 10, 16, tzinfo=UTC), 800),
    "Philly 18 Sep to 1 Oct": (datetime(2017, 9, 18, tzinfo=UTC), 624),
}
"""With some 56 % of the GPUs of the partitions that the rule gives."""
CURVES = {"": SpeedCurve(), ", speed 0.68/0.5": SpeedCurve(below=0.68, above=0.5)}
DAYS = 14


def run() -> Iterator[Figure]:
    """Yield the figures of each fortnight, of Kalos, and the time of a round."""
    data = os.environ.get("COSTOPT_DATA")
    if data is None:
        print("COSTOPT_DATA is not set: no recorded cluster", file=sys.stderr)
    else:
        yield from _philly(Path(data))
        yield from _kalos(Path(data) / KALOS)
    yield "a round of 2,000 jobs", round_ms(2000), "ms"


def _philly(data: Path) -> Iterator[Figure]:
    for path in sorted(data.glob(PHILLY)):
        recorded, _ = import_workload(path, "csv", start_at=datetime(2017, 10, 1, tzinfo=UTC))
        tiny = [name for name in TINY_TENANTS if name in recorded.tenants]
        for label, (begin_at, gpus) in FORTNIGHTS.items():
            try:
                trial = _fortnight(recorded.without_tenants(tiny), begin_at, gpus)
            except WorkloadError as error:
                print(f"{label}: {error.message}", file=sys.stderr)
                continue
            yield from _compared(label, trial)


def _fortnight(recorded: Workload, begin_at: datetime, gpus: int) -> FleetTrial:
    inside, before = recorded.window(begin_at, DAYS)
    return FleetTrial(inside, before, Cluster("shared", (8,) * (gpus // 8)), DAYS)


def _compared(label: str, trial: FleetTrial) -> Iterator[Figure]:
    share = trial.cluster.gpus / int(trial.partitions.sum())
    yield f"{label}: GPUs, share of the partitions'", share, ""
    for note, curve in CURVES.items():
        static, priced = replay_fleet(replace(trial, curve=curve), ("static", "priced")).figures
        yield from _figures(f"{label}{note}", static, priced)


def _figures(label: str, static: PolicyFigures, priced: PolicyFigures) -> Iterator[Figure]:
    more = priced.allocated_share / static.allocated_share
    yield f"{label}: mean completion time × static EASY", priced.static_ratio, ""
    yield f"{label}: worst tenant × its partition", priced.worst_tenant_ratio, ""
    yield f"{label}: allocated × static", more, ""
    yield f"{label}: restarts a job", priced.restarts_per_job, ""


def _kalos(path: Path) -> Iterator[Figure]:
    if not path.exists():
        print(f"Kalos: {path} is missing", file=sys.stderr)
        return
    start_at = datetime(2023, 5, 17, tzinfo=UTC)
    jobs = import_workload(path, "csv", start_at=start_at, tenant="kalos")[0].with_declared_work()
    inside, before = jobs.window(start_at, 120)
    curve, settings = SpeedCurve(max_gpus=512), ReplaySettings(restart_s=180)
    cluster = Cluster("half", (8,) * 64)
    schedule = FleetTrial(inside, before, cluster, 120, curve, settings).replay("priced")
    taken_s = schedule.end_s - inside.submit_s
    alone_s = inside.duration_s
    yield "Kalos on half the GPUs: mean × whole, no queue", taken_s.mean() / alone_s.mean(), ""
    p99 = np.percentile(taken_s, 99) / np.percentile(alone_s, 99)
    yield "Kalos on half the GPUs: p99 × whole, no queue", float(p99), ""


def round_ms(count: int, rounds: int = 50) -> float:
    """Return the median time of a round of `priced` with so many jobs, in milliseconds."""
    draw = np.random.default_rng(0)
    asked = draw.choice([1, 2, 4, 8, 16], count, p=[0.8, 0.08, 0.06, 0.05, 0.01])
    table = GangTable.of([SpeedCurve().options(int(n), None, None) for n in asked], asked.tolist())
    history = DurationHistory(np.zeros(1, dtype=np.int64), 1)
    served_s = draw.exponential(3600, count)
    group = np.zeros(count, dtype=np.int64)
    jobs = RoundJobs(
        gangs=table,
        weight=np.ones(count),
        held=np.where(draw.random(count) < 0.7, asked, 0),
        held_s=draw.exponential(3600, count),
        served_s=served_s,
        remaining_s=history.remaining_s(group, served_s),
        spread=np.where(draw.random(count) < 0.5, history.spread(group, served_s), 0.0),
        index=history.index(group, served_s),
        submit_s=np.arange(count, dtype=np.float64),
        is_behind=draw.random(count) < 0.01,
        price_cap=np.full(count, np.inf),
    )
    times = []
    for _ in range(rounds):
        began_s = time.perf_counter()
        PricedPolicy().decide(jobs, int(asked.sum() * 0.8))
        times.append(time.perf_counter() - began_s)
    return float(np.median(times)) * 1000
