"""A small simulated world: one GPU type, hand-written records, a clock that is set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import costopt_sim
from costopt.domain.fleet import LaunchRequest, Node
from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.job import CheckpointSpec, Job, Phase, Resources, WorkAmount, WorkUnit
from costopt.domain.market import CapacityType, Gpu, InstanceType, Pool
from costopt.domain.throughput import Throughput, ThroughputSample
from costopt_sim import SimProvider

T0 = datetime(2023, 2, 15, tzinfo=UTC)
V100 = Gpu("V100-SXM2-16GB", 16, 300, 38, 125, "fp16")
P3 = InstanceType("aws", "p3.2xlarge", V100, 1, 8, 61, 10, 2.5, 4, "test")
SPOT = Pool("aws", "us-east-1", "us-east-1a", "p3.2xlarge", CapacityType.SPOT)
ELSEWHERE = Pool("aws", "us-west-2", "us-west-2b", "p3.2xlarge", CapacityType.SPOT)
ON_DEMAND = SPOT.with_capacity_type(CapacityType.ON_DEMAND)


def after(seconds: float) -> datetime:
    """An instant of the test's world."""
    return T0 + timedelta(seconds=seconds)


@dataclass
class SetClock:
    """A clock that stands until it is moved."""

    at: datetime = field(default=T0)

    def now(self) -> datetime:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


class OneMachine:
    """A catalogue in which every pool is a p3.2xlarge."""

    def instance_type(self, pool: Pool) -> InstanceType | None:
        return P3 if pool.instance_type == "p3.2xlarge" else None


def pool_history(
    pool: Pool, states: Sequence[tuple[float, int | None, float | None]], ends_s: float
) -> PoolHistory:
    """States as (seconds, nodes, price)."""
    return PoolHistory(
        pool,
        tuple(MarketState(after(s), nodes, price) for s, nodes, price in states),
        after(ends_s),
    )


def market(
    *histories: PoolHistory, tick_s: float | None = None, name: str = "hand-written"
) -> MarketHistory:
    """A market of these pools."""
    return MarketHistory(name, {h.pool: h for h in histories}, tick_s, "typed for a test")


def training_job(
    amount: float = 1000.0,
    *,
    startup_s: float = 100.0,
    restore_s: float = 50.0,
    save_s: float = 10.0,
    deadline_s: float = 1e6,
) -> Job:
    """One unit per second and GPU on V100s."""
    return Job(
        name="job",
        work=WorkAmount(amount, WorkUnit.STEPS),
        start_at=T0,
        deadline_at=after(deadline_s),
        resources=Resources(max_nodes=4),
        throughput=Throughput((ThroughputSample("V100", 1, 1.0),), scaling_efficiency=1.0),
        checkpoint=CheckpointSpec("mem:ckpt", 1.0, save_s, restore_s),
        phases=(Phase("all", 1.0, 1, 4),),
        startup_s=startup_s,
    )


@dataclass
class Sim:
    """The provider in virtual mode, with its clock."""

    history: MarketHistory
    notice_s: float = 120.0
    clock: SetClock = field(default_factory=SetClock)
    provider: SimProvider = field(init=False)

    def __post_init__(self) -> None:
        self.provider = costopt_sim.connect(
            self.clock,
            {"market": self.history, "machines": OneMachine(), "notice_s": self.notice_s},
        )

    def go(self, seconds: float) -> datetime:
        """Move the clock to this second of the test's world."""
        self.clock.at = after(seconds)
        return self.clock.at

    def launch(self, nodes: int = 1, pool: Pool = SPOT, key: str = "k1") -> tuple[Node, ...]:
        return self.provider.launch(LaunchRequest("me", "job", pool, nodes, key))

    def states(self) -> dict[str, str]:
        return {node.node_id: node.state.value for node in self.provider.nodes("me")}
