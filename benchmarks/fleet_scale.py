"""How the time of a replay under `priced` grows with the jobs: generated, at the same load.

Jobs of three tenants arrive at random over as many days as keep 600 GPUs some 85 % busy at the
sizes they ask for: 80 % ask for one GPU, and durations are Pareto with a mean of 1.7 hours.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import numpy as np

from benchmarks.results import Figure
from costopt.backtesting.fleet.policies import FleetTrial
from costopt.domain.cluster import Cluster
from costopt.workload.workload import RecordedJob, Workload

SIZES = (3_000, 10_000, 30_000, 100_000)
NODES = (8,) * 75
LOAD = 0.85
START_AT = datetime(2026, 3, 1, tzinfo=UTC)


def run(sizes: tuple[int, ...] = SIZES) -> Iterator[Figure]:
    """Yield processor seconds by jobs, and by thousand jobs."""
    for count in sizes:
        work, days = generated_jobs(count)
        trial = FleetTrial(work, work.window(START_AT, days)[1], Cluster("made", NODES), days)
        began_s = time.process_time()
        trial.replay("priced")
        taken_s = time.process_time() - began_s
        yield f"{count:,} jobs over {days:.0f} days: processor time", taken_s, "s"
        yield f"{count:,} jobs over {days:.0f} days: by 1,000 jobs", taken_s / count * 1000, "s"


def generated_jobs(count: int) -> tuple[Workload, float]:
    """Return so many jobs, and the days over which they are submitted."""
    draw = np.random.default_rng(0)
    gpus = draw.choice([1, 2, 4, 8, 16], count, p=[0.8, 0.08, 0.06, 0.05, 0.01])
    duration_s = np.minimum(draw.pareto(1.3, count) * 1800 + 60, 7 * 86_400)
    days = float((gpus * duration_s).sum() / (LOAD * sum(NODES)) / 86_400)
    submit_s = np.sort(draw.uniform(0, days * 86_400, count))
    tenants = draw.choice(["speech", "vision", "search"], count, p=[0.5, 0.3, 0.2])
    jobs = [
        RecordedJob(
            f"j{index:06}",
            str(tenants[index]),
            START_AT + timedelta(seconds=float(submit_s[index])),
            float(duration_s[index]),
            int(gpus[index]),
        )
        for index in range(count)
    ]
    return Workload.of(jobs, title="made", source="generated", starts_at=START_AT), days


if __name__ == "__main__":
    for figure in run():
        print(figure, flush=True)
