"""How long planning takes: one job on 1,440 pools, its frontier, and jobs that compete."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.job import CheckpointSpec, Job, Phase, Resources, WorkAmount, WorkUnit
from costopt.domain.market import CapacityType, Gpu, InstanceType, Offer, Pool
from costopt.domain.policy import Objective, Policy
from costopt.domain.power import NodePower
from costopt.domain.progress import Progress
from costopt.domain.throughput import Throughput, ThroughputSample
from costopt.domain.view import JobView
from costopt.optimize.frontier import frontier
from costopt.optimize.planner import plan
from costopt.optimize.request import PlanRequest, Quota

NOW = datetime(2026, 3, 2, 8, tzinfo=UTC)
MODELS = (("A100-SXM4-40GB", 2.0), ("H100-SXM5-80GB", 5.0), ("L4", 0.7), ("V100-SXM2-16GB", 1.5))


def run() -> list[tuple[str, float, str]]:
    """(name, value, unit) of each measurement; the market is made up, with a fixed seed."""
    rows: list[tuple[str, float, str]] = []
    for pools in (240, 1440):
        one = _request(pools, jobs=1)
        rows.append((f"plan, 1 job, {pools} pools, 72 h", _seconds(partial(plan, one)), "s"))
        rows.append((f"frontier, 1 job, {pools} pools", _seconds(partial(frontier, one)), "s"))
    cbc = _request(1440, jobs=1)
    rows.append(
        ("plan with CBC, 1 job, 1440 pools", _seconds(partial(plan, cbc, solver="cbc")), "s")
    )
    crowd = _request(240, jobs=5, quota=24)
    started = time.perf_counter()
    made = plan(crowd, time_limit_s=10.0)
    rows.append(("plan, 5 jobs that compete, 240 pools", time.perf_counter() - started, "s"))
    rows.append(("its gap", 100 * (made.gap if made.gap is not None else float("nan")), "%"))
    return rows


def _seconds(work: Callable[[], object]) -> float:
    """The shorter of two runs."""
    times: list[float] = []
    for _ in range(2):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def _request(pools: int, *, jobs: int, quota: int | None = None) -> PlanRequest:
    rng = random.Random(20260302)
    offers: list[Offer] = []
    machines: dict[Pool, InstanceType] = {}
    powers: dict[Pool, NodePower] = {}
    for number in range(pools):
        model, usd = MODELS[number % len(MODELS)]
        kind = CapacityType.SPOT if number // len(MODELS) % 2 else CapacityType.ON_DEMAND
        zone = number // (2 * len(MODELS))
        pool = Pool("aws", f"r{zone // 3}", f"r{zone // 3}{'abc'[zone % 3]}", f"t-{model}", kind)
        machines[pool] = InstanceType(
            "aws",
            f"t-{model}",
            Gpu(model, 40.0, 400.0, 50.0, 312.0, "bf16"),
            8,
            96,
            1152.0,
            400.0,
            1.0,
            4.0,
            "made up",
        )
        powers[pool] = NodePower(
            1000.0, 4000.0, 1.2, rng.uniform(20, 700), Basis.MODELLED, 0.1, "made up"
        )
        offers.append(_offer(rng, pool, 8 * usd))
    quotas = () if quota is None else (Quota("all", max_nodes=quota),)
    return PlanRequest(
        now=NOW,
        jobs=tuple(JobView(_job(number), Progress()) for number in range(jobs)),
        offers=tuple(offers),
        machines=machines,
        powers=powers,
        policy=Policy("bench", objective=Objective(1.0, 0.1, 50.0)),
        quotas=quotas,
    )


def _offer(rng: random.Random, pool: Pool, usd_per_hour: float) -> Offer:
    spot = pool.capacity_type is CapacityType.SPOT
    price = usd_per_hour * rng.uniform(0.8, 1.3) * (0.35 if spot else 1.0)
    hazard = rng.uniform(0.01, 0.2) if spot else 0.0
    return Offer(
        pool,
        Estimate.exact(price, Basis.MEASURED, "made up", NOW),
        Estimate(hazard, hazard / 2, hazard * 1.5, Basis.MODELLED, "made up"),
        None,
    )


def _job(number: int) -> Job:
    points = (
        ("A100", 8, 1.0),
        ("A100", 64, 7.0),
        ("H100", 8, 2.2),
        ("L4", 8, 0.2),
        ("V100", 8, 0.4),
    )
    return Job(
        name=f"job{number}",
        work=WorkAmount((400 - 20 * number) * 3600.0, WorkUnit.STEPS),
        start_at=NOW,
        deadline_at=NOW + timedelta(hours=72 - 2 * number),
        resources=Resources(max_nodes=16),
        throughput=Throughput(tuple(ThroughputSample(*point) for point in points)),
        checkpoint=CheckpointSpec("file:///none", 10.0, 10.0, 60.0),
        phases=(Phase("train", 1.0, 1, 16),),
    )
