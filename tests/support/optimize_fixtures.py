"""Small machines, offers, jobs and requests for the tests of screening and optimizing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from costopt.domain.estimate import Basis, Estimate, Series
from costopt.domain.job import Budget, CheckpointSpec, Job, Phase, Resources, WorkAmount, WorkUnit
from costopt.domain.market import CapacityType, Gpu, InstanceType, Offer, Pool
from costopt.domain.policy import Policy
from costopt.domain.power import NodePower
from costopt.domain.progress import Progress
from costopt.domain.throughput import Throughput, ThroughputSample
from costopt.domain.view import JobView
from costopt.optimize.configurations import ConfigurationTable
from costopt.optimize.planner import prepare
from costopt.optimize.request import PlanRequest

NOW = datetime(2026, 3, 2, 8, tzinfo=UTC)
CHEAPEST = Policy("cheap")
UNHURRIED_S = 600.0
"""A limit of time that ends no plan of a test, however busy the machine is."""


def machine(
    model: str = "A100-SXM4-40GB", *, gpus: int = 8, name: str = "gpu.large"
) -> InstanceType:
    """A machine whose GPU draws 400 W."""
    gpu = Gpu(model, 40.0, 400.0, 50.0, 312.0, "bf16")
    return InstanceType("aws", name, gpu, gpus, 96, 1152.0, 400.0, 1.0, 4.0, "made up")


def pool(
    zone: str = "a",
    *,
    kind: CapacityType = CapacityType.SPOT,
    name: str = "gpu.large",
    region: str = "r1",
) -> Pool:
    """A pool of ``name`` in ``region``."""
    return Pool("aws", region, region + zone, name, kind)


def offer(
    where: Pool,
    usd_per_hour: float,
    *,
    hazard: float | None = 0.0,
    hazard_high: float | None = None,
    available: int | None = None,
) -> Offer:
    """An offer with a measured price of the present and an exact hazard unless told a high end."""
    estimate = None
    if hazard is not None:
        high = hazard if hazard_high is None else hazard_high
        estimate = Estimate(hazard, min(hazard, high), high, Basis.MEASURED, "made up")
    price = Estimate.exact(usd_per_hour, Basis.MEASURED, "made up", NOW)
    return Offer(where, price, estimate, available)


def power(
    busy_w: float = 4000.0, *, gco2e_per_kwh: float | None = 300.0, pue: float = 1.2
) -> NodePower:
    """A node that draws a quarter when idle."""
    return NodePower(busy_w / 4, busy_w, pue, gco2e_per_kwh, Basis.MODELLED, 0.1, "made up")


def job(
    work_h: float = 10.0,
    *,
    deadline_h: float = 24.0,
    start_h: float = 0.0,
    name: str = "job",
    resources: Resources | None = None,
    points: Iterable[tuple[str, int, float]] = (("A100", 8, 1.0),),
    startup_s: float = 120.0,
    restore_s: float = 60.0,
    save_s: float = 10.0,
    budget: Budget | None = None,
    efficiency: float = 0.9,
) -> Job:
    """A job of ``work_h`` hours on one 8-GPU node that does one unit a second."""
    return Job(
        name=name,
        work=WorkAmount(work_h * 3600, WorkUnit.STEPS),
        start_at=NOW + timedelta(hours=start_h),
        deadline_at=NOW + timedelta(hours=deadline_h),
        resources=resources or Resources(),
        throughput=Throughput(
            tuple(ThroughputSample(*point) for point in points), scaling_efficiency=efficiency
        ),
        checkpoint=CheckpointSpec("file:///tmp/none", 10.0, save_s, restore_s),
        phases=(Phase("train", 1.0, 1, 10_000),),
        startup_s=startup_s,
        budget=budget or Budget(),
    )


def machines_of(
    offers: Iterable[Offer], what: InstanceType | None = None
) -> Mapping[Pool, InstanceType]:
    """Every pool on the same machine."""
    return {o.pool: what or machine() for o in offers}


def hourly(prices: Mapping[Pool, Sequence[float]]) -> dict[Pool, Series]:
    """Forecasts that give these values for the hours from now on."""
    return {
        where: Series(tuple(NOW + timedelta(hours=h) for h in range(len(usd))), tuple(usd), "x")
        for where, usd in prices.items()
    }


def plan_request(
    offers: Iterable[Offer],
    *jobs: Job | JobView,
    policy: Policy = CHEAPEST,
    powers: Mapping[Pool, NodePower] | None = None,
    machines: Mapping[Pool, InstanceType] | None = None,
    **more: Any,
) -> PlanRequest:
    """A request for these jobs, by default one, where nodes are alike unless they are given."""
    used = tuple(offers)
    views = [one if isinstance(one, JobView) else JobView(one, Progress()) for one in jobs]
    return PlanRequest(
        NOW,
        tuple(views or [JobView(job(), Progress())]),
        used,
        machines or machines_of(used),
        {o.pool: power() for o in used} if powers is None else powers,
        policy,
        **more,
    )


def configuration_table(request: PlanRequest) -> ConfigurationTable:
    """The table of the request's only job."""
    ((planned,), _) = prepare(request)
    return planned.table
