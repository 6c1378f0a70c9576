"""Generated planning problems of any size: pools × hourly slots × jobs.

Only the spot prices can be recorded ones (``price_path``); places, hazards, carbon, quotas and jobs
are drawn with a fixed seed. Nodes have 8 or 4 GPUs; list prices, watts and speeds are typical
figures of each GPU model, not measurements.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from benchmarks.price_path import PricePaths, price_paths
from costopt.domain.estimate import Basis, Estimate, Series
from costopt.domain.job import CheckpointSpec, Job, Phase, Resources, WorkAmount, WorkUnit
from costopt.domain.market import CapacityType, Gpu, InstanceType, Offer, Pool
from costopt.domain.policy import Limits, Objective, Policy
from costopt.domain.power import NodePower, PowerCap
from costopt.domain.progress import Progress
from costopt.domain.throughput import Throughput, ThroughputSample
from costopt.domain.view import JobView
from costopt.optimize.request import PlanRequest, Quota

NOW = datetime(2026, 3, 2, 8, tzinfo=UTC)
SOURCE = "made up"
GPUS = (8, 4)
WHOLE = GPUS[0]
ZONES = "abc"
MODELS_PER_REGION = 3
EFFICIENCY = 0.93
HEADROOM = 8.0
"""What the quotas allow, over what the jobs need if each works evenly until its deadline."""

QUOTA_NODES_ALONE = (1, 2, 4, 8)
"""Of 8 GPUs: what a job that has the account for itself may use of a GPU model in a region."""

CAPS = ((0.5, 0.76), (0.625, 0.87), (0.75, 0.94), (0.875, 0.98))
"""(power limit over TDP, share of the speed that is kept): the usual shape of such curves."""


@dataclass(frozen=True, slots=True)
class Model:
    """A GPU model; price per hour and ``speed``, in units/s, are those of a node with 8."""

    name: str
    list_usd_per_hour: float
    speed: float
    memory_gib: float
    tdp_w: float
    tflops: float


MODELS = (
    Model("H100-SXM5-80GB", 70.0, 5.0, 80.0, 700.0, 989.0),
    Model("A100-SXM4-40GB", 28.0, 2.0, 40.0, 400.0, 312.0),
    Model("L4", 8.0, 0.5, 24.0, 72.0, 121.0),
    Model("A100-SXM4-80GB", 38.0, 2.3, 80.0, 400.0, 312.0),
    Model("H200-SXM-141GB", 84.0, 5.9, 141.0, 700.0, 989.0),
)
REFERENCE = MODELS[1]
"""The model by which work is measured out."""


def instance(pools: int, slots: int, jobs: int, seed: int = 0) -> PlanRequest:
    """A request with a horizon of ``slots`` hours; the same arguments give the same request.

    Raises OSError where COSTOPT_DATA names a folder without the recorded prices.
    """
    rng = random.Random(f"{pools}x{slots}x{jobs}/{seed}")
    views = tuple(_view(rng, number, slots, alone=jobs == 1) for number in range(jobs))
    placed = list(_places(pools))
    offers, forecasts = _market(rng, placed, price_paths(), slots)
    regions = sorted({_region(place.pool) for place in placed})
    carbon = {region: _carbon(rng, slots) for region in regions}
    return PlanRequest(
        now=NOW,
        jobs=views,
        offers=offers,
        machines={place.pool: _machine(place) for place in placed},
        powers={
            place.pool: _power(place, carbon[_region(place.pool)].values[0]) for place in placed
        },
        policy=Policy(
            "fleet",
            objective=Objective(1.0, usd_per_kwh=0.10, usd_per_tonne_co2e=50.0),
            limits=Limits(power_caps=True),
        ),
        quotas=_quotas(rng, placed, views),
        price_forecasts=forecasts,
        carbon_forecasts=carbon,
    )


def _region(pool: Pool) -> str:
    return f"{pool.provider}/{pool.region}"


@dataclass(frozen=True, slots=True)
class _Place:
    pool: Pool
    model: Model
    gpus: int

    @property
    def share(self) -> float:
        """Of a node with 8 GPUs."""
        return self.gpus / WHOLE


def _places(pools: int) -> Iterator[_Place]:
    """Region after region, each with three GPU models, two node sizes, three zones, two terms."""
    shapes = [
        (kind, gpus, zone, terms)
        for kind in range(MODELS_PER_REGION)
        for zone in ZONES
        for gpus in GPUS
        for terms in (CapacityType.SPOT, CapacityType.ON_DEMAND)
    ]
    for number in range(pools):
        place, within = divmod(number, len(shapes))
        kind, gpus, zone, terms = shapes[within]
        provider, region = ("gcp", "aws")[place % 2], f"region{place // 2}"
        model = MODELS[(kind + place) % len(MODELS)]
        node_type = f"{model.name.lower()}.{gpus}x"
        yield _Place(Pool(provider, region, region + zone, node_type, terms), model, gpus)


def _market(
    rng: random.Random, placed: Sequence[_Place], paths: PricePaths, slots: int
) -> tuple[tuple[Offer, ...], dict[Pool, Series]]:
    offers: list[Offer] = []
    forecasts: dict[Pool, Series] = {}
    markups: dict[str, float] = {}
    for place in placed:
        pool = place.pool
        markup = markups.setdefault(_region(pool), rng.uniform(1.0, 1.25))
        list_usd = place.model.list_usd_per_hour * place.share * markup
        if pool.capacity_type is CapacityType.ON_DEMAND:
            offers.append(_offer(pool, list_usd, 0.0, rng.choice((None, None, 4, 8))))
            continue
        shares = paths.hourly(place.model.name, slots, rng)
        hazard = math.exp(rng.uniform(math.log(0.003), math.log(0.08)))
        offers.append(_offer(pool, list_usd * shares[0], hazard, rng.choice((None, 0, 1, 2, 4, 8))))
        forecasts[pool] = _changes([list_usd * share for share in shares], paths.source)
    return tuple(offers), forecasts


def _offer(pool: Pool, usd_per_hour: float, hazard: float, nodes: int | None) -> Offer:
    return Offer(
        pool,
        Estimate.exact(usd_per_hour, Basis.LISTED, SOURCE, NOW),
        Estimate(hazard, 0.6 * hazard, 1.5 * hazard, Basis.MODELLED, SOURCE),
        nodes,
    )


def _changes(hourly: Sequence[float], source: str) -> Series:
    """Hourly values as a series that names only the hours at which they change."""
    kept = [hour for hour, value in enumerate(hourly) if hour == 0 or value != hourly[hour - 1]]
    return Series(
        tuple(NOW + timedelta(hours=hour) for hour in kept),
        tuple(hourly[hour] for hour in kept),
        source,
    )


def _carbon(rng: random.Random, slots: int) -> Series:
    """g/kWh: a grid's mean with a daily swing and a little noise."""
    mean, swing, peak = rng.uniform(40, 650), rng.uniform(0.05, 0.35), rng.uniform(0, 24)
    values = [
        mean * (1 + swing * math.cos((hour - peak) * math.tau / 24) + rng.gauss(0, 0.02))
        for hour in range(slots)
    ]
    return _changes(values, SOURCE)


def _machine(place: _Place) -> InstanceType:
    model = place.model
    gpu = Gpu(model.name, model.memory_gib, model.tdp_w, 0.12 * model.tdp_w, model.tflops, "bf16")
    vcpus, memory_gib = 12 * place.gpus, 144.0 * place.gpus
    return InstanceType(
        place.pool.provider,
        place.pool.instance_type,
        gpu,
        place.gpus,
        vcpus,
        memory_gib,
        50.0 * place.gpus,
        1.0,
        4.0,
        SOURCE,
    )


def _power(place: _Place, gco2e_per_kwh: float) -> NodePower:
    """160 W besides each GPU at work, 100 W idle; an idle GPU draws 12 % of its TDP."""
    gpus, tdp_w = place.gpus, place.model.tdp_w
    return NodePower(
        idle_w=gpus * (100.0 + 0.12 * tdp_w),
        busy_w=gpus * (160.0 + tdp_w),
        pue=1.12,
        gco2e_per_kwh=gco2e_per_kwh,
        basis=Basis.MODELLED,
        relative_error=0.15,
        source=SOURCE,
        caps=tuple(
            PowerCap(share * tdp_w, speed, gpus * (160.0 + share * tdp_w), SOURCE)
            for share, speed in CAPS
        ),
    )


def _view(rng: random.Random, number: int, slots: int, *, alone: bool) -> JobView:
    """Work of 30 to 70 % of what the largest gang of the reference model could do in time."""
    most = 8 if alone else rng.choice((2, 4, 8, 8))
    due_h = max(2, round(slots * rng.uniform(0.4, 1.0)))
    start_h = 0 if alone or rng.random() < 0.7 else rng.randrange(1, max(2, slots // 6))
    speed = REFERENCE.speed * (2 * EFFICIENCY) ** math.log2(most)
    units = rng.uniform(0.3, 0.7) * (due_h - start_h) * 3600 * speed
    return JobView(
        Job(
            name=f"job{number:03}",
            work=WorkAmount(units, WorkUnit.STEPS),
            start_at=NOW + timedelta(hours=start_h),
            deadline_at=NOW + timedelta(hours=due_h),
            resources=Resources(max_nodes=most),
            throughput=Throughput(
                tuple(ThroughputSample(m.name, WHOLE, _job_speed(rng, m)) for m in MODELS),
                scaling_efficiency=EFFICIENCY,
            ),
            checkpoint=CheckpointSpec("file:///none", 20.0, 15.0, rng.choice((60.0, 240.0))),
            phases=(Phase("train", 1.0, 1, most),),
            startup_s=rng.choice((120.0, 300.0)),
        ),
        Progress(),
    )


def _job_speed(rng: random.Random, model: Model) -> float:
    """Workloads gain differently from newer GPUs."""
    return model.speed if model is REFERENCE else model.speed * rng.uniform(0.85, 1.15)


def _quotas(
    rng: random.Random, placed: Sequence[_Place], views: Sequence[JobView]
) -> tuple[Quota, ...]:
    """GPUs by region and model, at least 8; more where the quotas together would be too few."""
    sites = sorted({(p.pool.provider, p.pool.region, p.model.name, p.model.speed) for p in placed})
    sizes = [math.exp(rng.gauss(0, 0.6)) for _ in sites]
    needed = HEADROOM * sum(map(_even_speed, views))
    scale = needed / sum(n * speed for n, (*_, speed) in zip(sizes, sites, strict=True))
    return tuple(
        Quota(
            f"{provider}/{region}/{model}",
            provider=provider,
            region=region,
            gpu_model=model,
            max_gpus=WHOLE
            * (rng.choice(QUOTA_NODES_ALONE) if len(views) == 1 else max(1, round(size * scale))),
        )
        for size, (provider, region, model, _) in zip(sizes, sites, strict=True)
    )


def _even_speed(view: JobView) -> float:
    """Units/s if the job works evenly from its start to its deadline."""
    hours = (view.job.until_at - view.job.start_at).total_seconds() / 3600
    return view.job.work.amount / hours / 3600
