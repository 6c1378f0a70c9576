"""Twelve jobs with a day of slack, each on recorded markets of two regions of unlike grids.

Nothing here was chosen by what it saves. The jobs are those of examples/ that train one model, and
the seven models with an MLPerf time on H100 and on another GPU of the catalogue, trained again and
again for a day on eight H100s; they may use every GPU with a time. A job on T4 runs on AWS, the
others on Google Cloud and AWS by turns. A job's home is the next of its cloud's regions, by name,
that sell its machines on spot and on demand and whose recorded mean is ``FOSSIL_G`` or more. The
second region that it may use is, of those that sell its machines on spot with a third of the home's
intensity or less, the one where its work costs least: where that is less than at home, the least
dollars are the clean ones, and an aim can save little.

Each job is drawn ``len(STARTS)`` times, with another start and other capacity. Prices are the spot
and on-demand list prices of Google Cloud from December 2025 on, change by change, and of AWS the
catalogue's; the capacity of each spot pool is that of one of the public traces of 2022 and 2023,
dealt out in order. Intensities are those recorded in autumn 2022, prices and traces being moved to
that time: no record holds all three at once.
"""

from __future__ import annotations

import csv
import gzip
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import cycle
from operator import itemgetter
from pathlib import Path
from statistics import fmean

from costopt.catalog import load_catalog
from costopt.domain.account import UNLIMITED
from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.job import (
    CheckpointSpec,
    Job,
    Phase,
    Resources,
    WorkAmount,
    WorkUnit,
)
from costopt.domain.market import CapacityType, Offer, Pool
from costopt.domain.policy import CarbonSignal, Policy
from costopt.domain.throughput import Throughput, ThroughputSample
from costopt.energy.carbon import HOUR, RecordedCarbon
from costopt.market.history_file import compress_samples
from costopt.planning.quotes import recorded_quotes
from costopt.planning.request import build_view
from costopt.spec import load_job
from costopt.strategies.gang_options import gang_options, uninterruptible_options
from costopt.strategies.remaining_time import seconds_to_finish
from tests.support.cant_be_late import read_trace

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = (
    "planning/llama-8b.yaml",
    "planning/llama-8b-phases.yaml",
    "notebooks/job.yaml",
    "finetune/job.yaml",
    "own_checkpoints/job.yaml",
)
MODELS = ("bert", "resnet", "maskrcnn", "ssd", "unet3d", "stable_diffusion", "llama2_70b_lora")
TIMES = "energy/mlperf_8gpu_ttt_by_gpu.csv"
GPUS = {
    "A100-SXM-80GB": ("A100-SXM4-80GB", "A100-SXM4-40GB"),
    "H100-SXM-80GB": ("H100-SXM5-80GB",),
    "H200-SXM": ("H200-SXM-141GB",),
    "B200-SXM": ("B200-SXM-180GB",),
    "L40S": ("L40S",),
}
"""The catalogue's names of the GPUs whose times are used; as there, both A100 have one time."""

FOSSIL_G, CLEAN_SHARE = 300.0, 1 / 3
"""The least mean intensity of a home, in g/kWh, and the second region's most as a share of it."""

BEGIN_AT = datetime(2022, 9, 5, tzinfo=UTC)
STARTS = tuple(BEGIN_AT + timedelta(days=4, hours=18 * number) for number in range(20))
DAYS = 27
PRICES = "gcp_gpu_spot_history_2022-2026.csv.gz"
PRICES_AT = datetime(2025, 12, 5, tzinfo=UTC)
"""The instant of the price record that becomes ``BEGIN_AT``."""

SLACK_S = 24 * 3600.0
PLAIN = Policy("cheapest")


Prices = dict[tuple[str, str], list[tuple[datetime, float, float]]]
"""By machine type and region: the instant, dollars on demand and on spot."""


@dataclass(frozen=True, slots=True)
class Case:
    """A job on one of its markets; ``home`` and ``second`` are "provider/region"."""

    job: Job
    market: MarketHistory
    home: str
    second: str


def cases(folder: Path, recorded: RecordedCarbon) -> Iterator[tuple[Case, ...]]:
    """Yield the draws of each job, as many as ``STARTS``."""
    prices = _gcp_prices(folder / PRICES)
    traces = cycle([_states(path) for path in sorted((folder / "traces").glob("*.json"))])
    clouds, taken = cycle(("gcp", "aws")), Counter[str]()
    for job in (*_examples(), *_models(folder / TIMES)):
        provider = "aws" if _needs_aws(job) else next(clouds)
        usable = [o for o in load_catalog().offers() if o.pool.provider == provider]
        usable = [offer for offer in usable if _fits(job, offer)]
        home, second = _regions(job, usable, taken[provider], prices, recorded)
        taken[provider] += 1
        offers = [o for o in usable if _region(o) in (home, second)]
        draws = []
        for at in STARTS:
            market = _market(f"{job.name} {at:%d}", offers, prices, traces)
            draws.append(Case(_with_slack(job, market, at), market, home, second))
        yield tuple(draws)


def _regions(
    job: Job, usable: Sequence[Offer], turn: int, prices: Prices, recorded: RecordedCarbon
) -> tuple[str, str]:
    """Home and the second region, as the rule at the top says."""
    usd: dict[str, float] = {}
    for offer in usable:
        if offer.pool.capacity_type is CapacityType.SPOT:
            work_usd = _work_usd(job, offer, prices)
            usd[_region(offer)] = min(work_usd, usd.get(_region(offer), work_usd))
    safe = {_region(o) for o in usable if o.pool.capacity_type is CapacityType.ON_DEMAND}
    known = {each: mean for each in usd if (mean := _mean_intensity(each, recorded)) is not None}
    homes = [
        (home, [each for each in known if known[each] <= CLEAN_SHARE * known[home]])
        for home in sorted(safe & known.keys())
        if known[home] >= FOSSIL_G
    ]
    home, clean = homes[turn % len(homes)]
    return home, min(clean, key=lambda each: (usd[each], each))


def _region(offer: Offer) -> str:
    return f"{offer.pool.provider}/{offer.pool.region}"


def _work_usd(job: Job, offer: Offer, prices: Prices) -> float:
    """Of all the work on the smallest gang, at the first price."""
    machine = load_catalog().instance_type(offer.pool)
    assert machine is not None
    nodes = job.gang_sizes(machine)[0]
    speed = job.gang_units_per_s(machine, nodes)
    assert speed is not None
    return nodes * _dollars(offer, prices)[0][1] * job.work.amount / speed.value / 3600


def _mean_intensity(region: str, recorded: RecordedCarbon) -> float | None:
    """In g/kWh over the days of the markets; None where none was recorded."""
    hours = (BEGIN_AT + hour * HOUR for hour in range(24 * DAYS))
    known = [recorded.intensity(region, at, CarbonSignal.AVERAGE) for at in hours]
    values = [each.value for each in known if each is not None]
    return fmean(values) if values else None


def _examples() -> Iterator[Job]:
    for name in EXAMPLES:
        job = load_job(ROOT / "examples" / name, now=BEGIN_AT)
        yield replace(job, tenant="default")


def _models(path: Path) -> Iterator[Job]:
    """Each as many times as eight H100s do in a day; a unit is a thousandth of a training."""
    minutes: dict[str, dict[str, float]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            for gpu in GPUS.get(row["gpu"], ()):
                minutes.setdefault(row["benchmark"], {})[gpu] = float(row["min"])
    for model in MODELS:
        points = tuple(
            ThroughputSample(gpu, 8, 1000 / (60 * each)) for gpu, each in minutes[model].items()
        )
        speed = next(p.units_per_s for p in points if p.gpu_model.startswith("H100"))
        yield Job(
            name=model.replace("_", "-"),
            work=WorkAmount(speed * 24 * 3600, WorkUnit.STEPS),
            start_at=BEGIN_AT,
            deadline_at=BEGIN_AT + timedelta(days=10),
            resources=Resources(gpu_models=tuple(p.gpu_model for p in points), min_gpus=8),
            throughput=Throughput(points=points),
            checkpoint=CheckpointSpec(uri="checkpoints", save_s=30.0, restore_s=120.0),
            phases=(Phase("all", 1.0, 1, 1),),
            startup_s=300.0,
        )


def _needs_aws(job: Job) -> bool:
    return any(gpu.startswith(("T4", "V100")) for gpu in job.resources.gpu_models)


def _fits(job: Job, offer: Offer) -> bool:
    machine = load_catalog().instance_type(offer.pool)
    return (
        machine is not None
        and offer.price_usd_per_hour is not None
        and offer.pool.capacity_type in (CapacityType.SPOT, CapacityType.ON_DEMAND)
        and job.resources.rejection_reason(machine) is None
        and bool(job.gang_sizes(machine))
        and job.gang_units_per_s(machine, job.gang_sizes(machine)[0]) is not None
    )


def _gcp_prices(path: Path) -> Prices:
    found: Prices = {}
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["spot_usd_h"] and row["on_demand_usd_h"]:
                at = datetime.fromisoformat(row["date"]).replace(tzinfo=UTC)
                key = row["machine_type"], row["region"]
                known = at, float(row["on_demand_usd_h"]), float(row["spot_usd_h"])
                found.setdefault(key, []).append(known)
    return {key: sorted(rows) for key, rows in found.items()}


def _states(path: Path) -> list[tuple[datetime, bool]]:
    """Changes of a trace's capacity, from ``BEGIN_AT`` on."""
    up, gap_s = read_trace(path)
    changes: list[tuple[datetime, bool]] = []
    for n, value in enumerate(up):
        if not changes or changes[-1][1] != bool(value):
            changes.append((BEGIN_AT + timedelta(seconds=n * gap_s), bool(value)))
    return changes


def _market(
    name: str,
    offers: Iterable[Offer],
    prices: Prices,
    traces: Iterator[list[tuple[datetime, bool]]],
) -> MarketHistory:
    ends_at = BEGIN_AT + timedelta(days=DAYS)
    pools: dict[Pool, PoolHistory] = {}
    for offer in sorted(offers, key=lambda each: str(each.pool)):
        pool = offer.pool
        if pool in pools:
            continue
        spot = pool.capacity_type is CapacityType.SPOT
        capacity = next(traces) if spot else [(BEGIN_AT, True)]
        dollars = _dollars(offer, prices)
        instants = sorted({at for at, _ in (*capacity, *dollars) if BEGIN_AT <= at < ends_at})
        samples = [
            MarketState(at, 16 if _last(capacity, at) else 0, float(_last(dollars, at)))
            for at in instants
        ]
        pools[pool] = PoolHistory(pool, tuple(compress_samples(samples)), ends_at)
    return MarketHistory(name, pools, None, "lists and traces, moved in time")


def _dollars(offer: Offer, prices: Prices) -> list[tuple[datetime, float]]:
    assert offer.price_usd_per_hour is not None
    listed = [(BEGIN_AT, offer.price_usd_per_hour.value)]
    known = prices.get((offer.pool.instance_type, offer.pool.region))
    if known is None:
        return listed
    spot = offer.pool.capacity_type is CapacityType.SPOT
    moved = [
        (BEGIN_AT + (at - PRICES_AT), of_spot if spot else safe) for at, safe, of_spot in known
    ]
    before = [each for each in moved if each[0] <= BEGIN_AT]
    return [(BEGIN_AT, before[-1][1]), *(each for each in moved if each[0] > BEGIN_AT)]


def _last(
    changes: list[tuple[datetime, float]] | list[tuple[datetime, bool]], at: datetime
) -> float:
    return changes[bisect_right(changes, at, key=itemgetter(0)) - 1][1]


def _with_slack(job: Job, market: MarketHistory, at: datetime) -> Job:
    """The job, due a day after the cheapest safe gang would have done it."""
    far = replace(job, start_at=at, deadline_at=at + timedelta(days=30))
    offers = recorded_quotes(market, at).offers
    view = build_view((far,), PLAIN, offers, at, UNLIMITED)
    safe = uninterruptible_options(gang_options(view, view.jobs[0]))[0]
    needed_s = seconds_to_finish(safe, far, far.work.amount) + PLAIN.risk.reserve_s + SLACK_S
    return replace(far, deadline_at=at + timedelta(seconds=needed_s))
