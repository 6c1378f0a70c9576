"""The markets and the jobs of ``benchmarks.calibration``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import costopt as co
from costopt.domain.history import MarketHistory, PoolHistory
from costopt.domain.job import Job
from costopt.domain.market import CapacityType, Pool
from costopt.market.generator import fill_capacity, generate_market
from costopt.market.history_file import compress_samples
from costopt.market.importers import import_spot_trace, import_wide_csv

V100_ON_DEMAND_USD, V100_SPOT_USD = 3.06, 0.9731
T4_USD = {CapacityType.SPOT: 0.18936, CapacityType.ON_DEMAND: 0.526}
"""The catalog's prices of p3.2xlarge in us-west-2 and g4dn.xlarge in us-east-1."""

RECORD = "aws_v100_2023_price_avail_5zones.csv.gz"
GENERATED_H = 40 * 24.0
WARM_SHARE = 0.25
"""Of a record, before the first start."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of job: ``work_h`` hours on its fewest nodes, due ``due_h`` hours after its start.

    Its gang has ``nodes``, or from ``min_nodes`` to ``nodes`` as the strategy chooses.
    """

    work_h: float
    due_h: float
    nodes: int = 1
    min_nodes: int | None = None
    startup: str = "10m"
    restore: str = "5m"
    save: str = "60s"


KINDS: Mapping[str, Kind] = {
    "2 h in 3.5 h": Kind(2, 3.5, startup="5m", restore="2m", save="30s"),
    "8 h in 10.8 h": Kind(8, 10.8),
    "40 h in 80 h": Kind(40, 80),
    "4 nodes, 12 h in 20 h": Kind(12, 20, nodes=4),
    "1 to 4 nodes, 24 h of one in 20 h": Kind(24, 20, nodes=4, min_nodes=1),
}


@dataclass(frozen=True, slots=True)
class Market:
    """A market, and the GPUs of one of its nodes."""

    history: MarketHistory
    gpu: str
    gpus: int
    max_nodes: int


def markets() -> Iterator[Market]:
    """Yield the shipped market, generated ones and, where there are data, two recorded ones."""
    sample = co.read_market("sample").history
    yield Market(sample, "H100", 8, 4)
    yield Market(_refilled(sample), "H100", 8, 4)
    for seed, profile in enumerate(("calm", "typical", "harsh", "scarce"), 11):
        yield Market(_generated(profile, seed), "T4", 1, 4)
    folder = os.environ.get("COSTOPT_DATA")
    if folder is None:
        print("  COSTOPT_DATA is unset: no recorded market was looked at")
        return
    for read in (partial(_five_zones, Path(folder)), partial(_two_zones, Path(folder))):
        yield Market(read(), "V100-SXM2-16GB", 1, 1)


def _refilled(sample: MarketHistory) -> MarketHistory:
    """The prices of the shipped market, with harsher capacity."""
    bare = {
        pool: PoolHistory(
            pool,
            tuple(compress_samples(replace(s, nodes_available=None) for s in h.states))
            if pool.capacity_type is CapacityType.SPOT
            else h.states,
            h.ends_at,
        )
        for pool, h in sample.pools.items()
    }
    unknown = replace(sample, pools=bare, tick_s=None)
    filled = fill_capacity(unknown, seed=1, profile="harsh", tick_s=600.0)
    return replace(filled, name="sample, harsh", tick_s=600.0)


def _generated(profile: str, seed: int) -> MarketHistory:
    prices = {
        Pool("aws", "us-east-1", f"us-east-1{zone}", "g4dn.xlarge", terms): usd
        for zone in "abc"
        for terms, usd in T4_USD.items()
    }
    made = generate_market(prices, hours=GENERATED_H, seed=seed, profile=profile)
    return replace(made, name=f"generated, {profile}")


def _five_zones(folder: Path) -> MarketHistory:
    read = import_wide_csv(folder / RECORD, on_demand_usd_per_hour=lambda _: V100_ON_DEMAND_USD)
    return replace(read, name="recorded 2023, five zones")


def _two_zones(folder: Path) -> MarketHistory:
    parts = [
        _zone(path)
        for path in sorted((folder / "traces").glob("*10-26-2022_us-west-2?_v100_1.json"))
    ]
    end = min(part.ends_at for part in parts)
    pools = {
        pool: PoolHistory(pool, tuple(s for s in h.states if s.starts_at < end), end)
        for part in parts
        for pool, h in part.pools.items()
    }
    return MarketHistory("recorded 2022, two zones", pools, parts[0].tick_s, "traces of 2022")


def _zone(path: Path) -> MarketHistory:
    date, zone = path.stem.split("_")[2:4]
    month, day, year = date.split("-")[1:]
    return import_spot_trace(
        path,
        spot_usd_per_hour=V100_SPOT_USD,
        on_demand_usd_per_hour=V100_ON_DEMAND_USD,
        pool=Pool("aws", zone[:-1], zone, "p3.2xlarge", CapacityType.SPOT),
        start_at=datetime.fromisoformat(f"{year}-{month}-{day}T00:00:00+00:00"),
    )


def job_of(market: Market, kind: Kind, start_at: datetime) -> Job:
    """Return the job of this kind on the market's machines."""
    fewest = kind.min_nodes or kind.nodes
    gpus = market.gpus * fewest
    text = f"""\
kind: job
version: 1
name: typed
work: {{amount: {kind.work_h * 3600:g}, unit: steps}}
deadline: {round(kind.due_h * 60)}m
resources:
  gpu_models: [{market.gpu}]
  min_gpus: {gpus}
  min_nodes: {fewest}
  max_nodes: {kind.nodes}
throughput:
  points: [{{gpu: {market.gpu}, gpus: {gpus}, units_per_s: 1.0}}]
  scaling_efficiency: 0.93
checkpoint: {{uri: saves, size_gib: 20, save: {kind.save}, restore: {kind.restore}}}
startup: {kind.startup}
"""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "job.yaml"
        path.write_text(text)
        return co.load_job(path, now=start_at)


def starts_of(history: MarketHistory, due_h: float, count: int) -> Iterator[datetime]:
    """Yield instants on the record's grid, evenly spread over it after a warm-up."""
    length = history.ends_at - history.starts_at
    first = history.starts_at + WARM_SHARE * length
    last = history.ends_at - timedelta(hours=due_h)
    tick = timedelta(seconds=history.tick_s or 300.0)
    if length < timedelta(hours=2 * due_h):
        return
    for number in range(count):
        at = first + (last - first) * number / max(1, count - 1)
        yield history.starts_at + tick * ((at - history.starts_at) // tick)
