"""The engine over a simulated cloud whose faults a test can turn on and off."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from costopt.controller.site import connect_virtual_provider
from costopt.domain.account import UNLIMITED, Account
from costopt.domain.errors import NoCapacityError, ProviderUnavailableError
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.events import Event
from costopt.domain.fleet import LaunchRequest, Node, NodeState
from costopt.domain.history import PoolHistory
from costopt.domain.job import Job, Phase, Resources
from costopt.domain.market import CapacityType, InstanceType, Offer, Pool
from costopt.domain.policy import CarbonSignal, Limits, Policy, Risk, Rule, StrategySpec
from costopt.domain.ports import (
    CarbonRecord,
    Clock,
    HazardModel,
    Ledger,
    PowerModel,
    RecordedEvent,
    Strategy,
)
from costopt.domain.power import NodePower
from costopt.domain.runtime import Runtime
from costopt.domain.view import Decision, Desired, Target, View
from costopt.engine.engine import Engine, TickResult
from costopt.engine.loop import VirtualClock
from costopt.engine.settings import EngineSettings, World, deterministic_key
from costopt.ledger.base import MemoryLedger
from costopt.ledger.summary import JobSummary
from costopt.provider.wrapper import ProviderWrapper
from costopt.strategies import build
from tests.support.cant_be_late import NoHazard
from tests.support.engines import start_engine
from tests.support.market_fixtures import P3, T0, V100, market, pool_history, training_job

SPOT_A = Pool("aws", "us-east-1", "us-east-1a", "p3.2xlarge", CapacityType.SPOT)
SPOT_B = Pool("aws", "us-east-1", "us-east-1b", "p3.2xlarge", CapacityType.SPOT)
SAFE = SPOT_A.with_capacity_type(CapacityType.ON_DEMAND)
BIG_SAFE = Pool("aws", "us-east-1", "us-east-1a", "p3.8xlarge", CapacityType.ON_DEMAND)
P3_BIG = InstanceType("aws", "p3.8xlarge", V100, 4, 32, 244, 10, 2.5, 4, "test")
HOUR_S = 3600.0
AnyEvent = TypeVar("AnyEvent", bound=Event)

T = TypeVar("T")


class Machines:
    """The types of the test's world."""

    def instance_type(self, pool: Pool) -> InstanceType | None:
        return {P3.name: P3, P3_BIG.name: P3_BIG}.get(pool.instance_type)


class Powers:
    """1 kW busy and 0.5 kW idle per node, at the meter."""

    def node_power(
        self, pool: Pool, carbon_signal: CarbonSignal = CarbonSignal.AVERAGE
    ) -> NodePower | None:
        return NodePower(500, 1000, 1.0, 400, Basis.MODELLED, 0.1, "test")


class SomeHazard(NoHazard):
    """Spot is taken every twenty hours, by what is known."""

    def hazard_per_hour(self, pool: Pool) -> Estimate | None:
        if not pool.capacity_type.is_interruptible:
            return None
        return Estimate(0.05, 0.02, 0.1, Basis.PRIOR, "test")

    def availability(self, pool: Pool) -> Estimate | None:
        return None


class FaultyCloud(ProviderWrapper):
    """The simulator behind a line on which every call can fail."""

    def __init__(self, clock: Clock, histories: Sequence[PoolHistory], notice_s: float) -> None:
        history = market(*histories)
        self.inner = connect_virtual_provider(
            clock, {"market": history, "machines": Machines(), "notice_s": notice_s}
        )
        super().__init__(self.inner)
        self._runtime = self.inner.runtime
        self.silent: set[str] = set()
        self.refusing: set[Pool] = set()
        self.hidden: set[str] = set()
        self.pending: set[str] = set()
        self.quoted_prices: dict[Pool, Estimate | None] = {}
        self.surcharge = 1.0
        self.requests: list[LaunchRequest] = []
        self.released: list[str] = []

    def _answer(self, call: str) -> None:
        if call in self.silent:
            raise ProviderUnavailableError(f"{call}: no answer")

    @property
    def runtime(self) -> Runtime:
        return self._runtime

    @runtime.setter
    def runtime(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def _call(self, method: str, call: Callable[[], T]) -> T:
        self._answer(method)
        return call()

    def offers(self, now: datetime) -> Sequence[Offer]:
        self._answer("offers")
        return [
            replace(o, price_usd_per_hour=self.quoted_prices.get(o.pool, o.price_usd_per_hour))
            for o in self.inner.offers(now)
        ]

    def nodes(self, owner: str) -> tuple[Node, ...]:
        self._answer("nodes")
        return tuple(
            self._reported(n) for n in self.inner.nodes(owner) if n.node_id not in self.hidden
        )

    def launch(self, request: LaunchRequest) -> tuple[Node, ...]:
        self._answer("launch")
        self.requests.append(request)
        if request.pool in self.refusing:
            raise NoCapacityError(f"{request.pool}: none left")
        return tuple(self._reported(n) for n in self.inner.launch(request))

    def terminate(self, node_id: str) -> None:
        self._answer("terminate")
        self.released.append(node_id)
        self.inner.terminate(node_id)

    def _reported(self, node: Node) -> Node:
        if node.node_id in self.pending:
            node = replace(node, state=NodeState.PENDING)
        surcharge = self.surcharge if node.pool == SPOT_A else 1.0
        return replace(node, usd_per_hour=node.usd_per_hour * surcharge)


class Follow:
    """A strategy that wants what the test says."""

    def __init__(self, *targets: Target, **by_job: tuple[Target, ...]) -> None:
        self.targets = targets
        self.by_job = by_job
        self.views: list[View] = []

    def decide(self, view: View) -> Desired:
        self.views.append(view)
        return Desired(
            tuple(
                Decision(jv.job.name, self.by_job.get(jv.job.name, self.targets), "as told")
                for jv in view.jobs
            )
        )


class Scene:
    """A cloud, a ledger and a clock that outlive the engines made over them."""

    def __init__(
        self,
        *histories: PoolHistory,
        jobs: Sequence[Job],
        policy: Policy | None = None,
        strategy: Strategy | None = None,
        notice_s: float = 0.0,
        ledger: Ledger | None = None,
        hazards: HazardModel | None = None,
        tick_s: float = 60.0,
        cooldown_s: float = 300.0,
        drain_timeout_s: float = 300.0,
        powers: PowerModel | None = None,
        carbon: CarbonRecord | None = None,
        account: Account = UNLIMITED,
    ) -> None:
        self.clock = VirtualClock(T0)
        self.cloud = FaultyCloud(self.clock, histories, notice_s)
        self.ledger = ledger or MemoryLedger()
        self.policy = policy or rules("greedy_spot")
        self.jobs = jobs
        self.settings = EngineSettings(
            tick_s=tick_s,
            cooldown_s=cooldown_s,
            drain_timeout_s=drain_timeout_s,
            new_key=deterministic_key,
            account=account,
        )
        self.strategy = strategy
        self.hazards = hazards or NoHazard()
        self.powers = powers or Powers()
        self.carbon = carbon
        self.engine = self.restart()

    def restart(self) -> Engine:
        """A new controller over the same world."""
        world = World(
            (self.cloud,),
            self.cloud.runtime,
            self.ledger,
            self.clock,
            Machines(),
            self.powers,
            self.hazards,
            carbon=self.carbon,
        )
        strategy = self.strategy or build(self.policy.strategy)
        self.engine = start_engine(self.jobs, self.policy, strategy, world, self.settings)
        return self.engine

    def tick(self) -> TickResult:
        """One tick, and then the clock goes on."""
        result = self.engine.tick()
        self.clock.sleep(self.settings.tick_s)
        return result

    def go(self, seconds: float) -> None:
        """Ticks for this long."""
        for _ in range(round(seconds / self.settings.tick_s)):
            self.tick()

    def finish(self, max_ticks: int = 2000) -> None:
        """Ticks until nothing is left to do."""
        for _ in range(max_ticks):
            if self.tick().is_done:
                return
        raise AssertionError("the run never ended")

    def all_events(self) -> Iterator[RecordedEvent]:
        return iter(list(self.ledger.events()))

    def events(self, kind: type[AnyEvent], job: str = "job") -> list[AnyEvent]:
        """The job's events of one type, in order."""
        return [r.event for r in self.ledger.events(job) if isinstance(r.event, kind)]

    def living(self, job: str = "job") -> list[Node]:
        """Its nodes in the cloud."""
        nodes = self.cloud.inner.nodes(self.settings.owner)
        return [n for n in nodes if n.state.is_alive and n.job == job]

    def pools(self, job: str = "job") -> list[Pool]:
        """The pools in which they are."""
        return [n.pool for n in self.living(job)]

    def summary(self, job: str = "job") -> JobSummary:
        return self.engine.journal.accounts[job].summary(self.clock.now())


def always(pool: Pool, nodes: int, usd_per_hour: float) -> PoolHistory:
    """A pool that never changes."""
    return pool_history(pool, [(0, nodes, usd_per_hour)], 60 * 24 * HOUR_S)


def changing(pool: Pool, *states: tuple[float, int | None, float | None]) -> PoolHistory:
    """A pool with these (second, nodes, price)."""
    return pool_history(pool, states, 60 * 24 * HOUR_S)


def rules(
    strategy: str,
    *tightened: Rule,
    reserve_s: float = 0.0,
    limits: Limits | None = None,
    **parameters: float,
) -> Policy:
    """A policy without a reserve."""
    return Policy(
        "test",
        risk=Risk(0.95, reserve_s),
        strategy=StrategySpec(strategy, parameters),
        limits=limits or Limits(),
        rules=tightened,
    )


def task(
    work_s: float = 4 * HOUR_S,
    deadline_s: float = 40 * HOUR_S,
    nodes: tuple[int, int] = (1, 1),
    name: str = "job",
    save_s: float = 10.0,
) -> Job:
    """One unit per second and V100; saves every half hour."""
    job = training_job(work_s, deadline_s=deadline_s, save_s=save_s)
    return replace(
        job,
        name=name,
        resources=Resources(min_nodes=nodes[0], max_nodes=nodes[1]),
        phases=(Phase("all", 1.0, *nodes),),
        checkpoint=replace(job.checkpoint, interval_s=1800.0),
    )
