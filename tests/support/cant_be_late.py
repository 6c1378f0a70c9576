"""The public "Can't Be Late" benchmark set up on our engine."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path

from costopt.backtesting.hindsight import hindsight_optimum
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.job import CheckpointSpec, Job, Phase, Resources, WorkAmount, WorkUnit
from costopt.domain.market import CapacityType, Gpu, InstanceType, Offer, Pool
from costopt.domain.policy import CarbonSignal, Policy, Risk, StrategySpec
from costopt.domain.ports import InstanceCatalog
from costopt.domain.power import NodePower
from costopt.domain.throughput import Throughput, ThroughputSample

EPOCH = datetime(2023, 1, 1, tzinfo=UTC)
ON_DEMAND_USD = 3.06
SPOT_USD = 0.9731
V100 = InstanceType(
    provider="aws",
    name="p3.2xlarge",
    gpu=Gpu("V100-SXM2-16GB", 16, 300, 40, 125, "fp16"),
    gpu_count=1,
    vcpus=8,
    memory_gib=61,
    network_gbps=10,
    cpu_idle_w_per_vcpu=1,
    cpu_max_w_per_vcpu=4,
    source="test",
)


class OneMachine:
    """A catalogue of one type."""

    def instance_type(self, pool: Pool) -> InstanceType | None:
        return V100 if pool.instance_type == V100.name else None


class OnePower:
    """The same power everywhere."""

    def node_power(
        self, pool: Pool, carbon_signal: CarbonSignal = CarbonSignal.AVERAGE
    ) -> NodePower | None:
        return NodePower(100, 400, 1.2, 300, Basis.MODELLED, 0.1, "test")


class NoHazard:
    """Knows nothing."""

    def observe(
        self, offers: Sequence[Offer], now: datetime, running: Collection[Pool] = ()
    ) -> None:
        return

    def record_interruption(self, pool: Pool, at: datetime) -> None:
        return

    def hazard_per_hour(self, pool: Pool) -> Estimate | None:
        return None

    def availability(self, pool: Pool) -> Estimate | None:
        return None


def market(
    up: Sequence[int], gap_s: float, zone: str = "us-west-2a", spot_usd: float = SPOT_USD
) -> MarketHistory:
    """One spot pool that is up where ``up`` says so, and on-demand beside it."""
    spot = Pool("aws", zone[:-1], zone, V100.name, CapacityType.SPOT)
    on_demand = spot.with_capacity_type(CapacityType.ON_DEMAND)
    ends_at = EPOCH + timedelta(seconds=gap_s * len(up))
    states = []
    for value, run in groupby(enumerate(up), key=lambda pair: pair[1]):
        first = next(run)[0]
        states.append(MarketState(EPOCH + timedelta(seconds=first * gap_s), value, spot_usd))
    safe = (MarketState(EPOCH, 10_000, ON_DEMAND_USD),)
    pools = {
        spot: PoolHistory(spot, tuple(states), ends_at),
        on_demand: PoolHistory(on_demand, safe, ends_at),
    }
    return MarketHistory(zone, pools, gap_s, "test")


def read_trace(path: Path) -> tuple[list[int], float]:
    """A public availability file: 1 = available, and its grid in seconds."""
    trace = json.loads(path.read_text())
    return [int(bool(v)) for v in trace["data"]], float(trace["metadata"]["gap_seconds"])


def job(deadline_h: float, overhead_h: float, task_h: float = 48, start_s: float = 0) -> Job:
    """The benchmark's job: one unit of work is one second of a V100."""
    start_at = EPOCH + timedelta(seconds=start_s)
    return Job(
        name="task",
        work=WorkAmount(task_h * 3600, WorkUnit.STEPS),
        start_at=start_at,
        deadline_at=start_at + timedelta(hours=deadline_h),
        resources=Resources(gpu_models=("V100",)),
        throughput=Throughput(points=(ThroughputSample("V100", 1, 1.0),)),
        checkpoint=CheckpointSpec(uri="none", save_s=0.0, restore_s=0.0, interval_s=1e9),
        phases=(Phase("all", 1.0, 1, 1),),
        startup_s=overhead_h * 3600,
    )


def policy(strategy: str, **parameters: bool) -> Policy:
    """No reserve: the benchmark's deadline is the deadline."""
    return Policy(strategy, risk=Risk(0.95, 0.0), strategy=StrategySpec(strategy, parameters))


def hindsight_usd(
    job: Job, policy: Policy, market: MarketHistory, machines: InstanceCatalog
) -> float | None:
    """Dollars of the hindsight optimum, or None where it is not defined."""
    best = hindsight_optimum(job, policy, market, machines)
    return None if best is None else best.usd
