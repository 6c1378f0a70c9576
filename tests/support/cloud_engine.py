"""The engine over a test cloud: whoever trains is not of interest, who runs is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from costopt.controller.orphans import find_orphans
from costopt.domain.array import TaskRecord
from costopt.domain.events import Event, NodeEnded, NodeLaunched
from costopt.domain.events.node import has_estimated_end
from costopt.domain.fleet import Node
from costopt.domain.job import Job
from costopt.domain.market import CapacityType, InstanceType, Pool
from costopt.domain.policy import Limits
from costopt.domain.ports import Ledger
from costopt.domain.power import PowerCap
from costopt.domain.progress import GangState, Progress
from costopt.domain.runtime import (
    CheckpointRecord,
    NodeReport,
    PowerLimitRecord,
    PowerProbeRecord,
    RejectedCheckpointRecord,
)
from costopt.domain.view import Target
from costopt.engine.engine import Engine
from costopt.engine.settings import EngineSettings, World, deterministic_key
from costopt.ledger.base import MemoryLedger
from tests.support.cant_be_late import NoHazard
from tests.support.engine_fixtures import Follow, Powers, rules, task
from tests.support.engines import start_engine
from tests.support.market_fixtures import P3

AnyEvent = TypeVar("AnyEvent", bound=Event)


class CloudAccount(Protocol):
    """An account on a test cloud; whoever connects again remembers nothing."""

    clock: Any
    provider: Any
    orphan_kinds: tuple[str, ...]
    """The kinds of orphans that may not be left after a run."""

    def connect(self) -> Any: ...

    def alive(self) -> list[str]: ...


AnyAccount = TypeVar("AnyAccount", bound=CloudAccount)


class Machines:
    """Every type is like a p3.2xlarge."""

    def instance_type(self, pool: Pool) -> InstanceType | None:
        return replace(P3, name=pool.instance_type)


class Endless:
    """A Runtime whose gangs train for ever and save at once."""

    def __init__(self) -> None:
        self.generation = 0
        self._asked: set[str] = set()

    def form_gang(
        self,
        job: Job,
        generation: int,
        nodes: tuple[Node, ...],
        checkpoint_interval_s: float,
        power_cap: PowerCap | None = None,
    ) -> None:
        self.generation = generation

    def cap_power(self, job: Job, power_cap: PowerCap | None) -> None:
        return

    def power_limits(self, job: Job) -> tuple[PowerLimitRecord, ...]:
        return ()

    def probe_power_limit(self, job: Job, number: int, cap_w: float | None, seconds: float) -> None:
        return

    def power_probes(self, job: Job) -> tuple[PowerProbeRecord, ...]:
        return ()

    def node_reports(self, job: Job) -> tuple[NodeReport, ...]:
        return ()

    def progress(self, job: Job, now: datetime) -> Progress:
        return Progress(state=GangState.TRAINING, generation=self.generation)

    def checkpoints(self, job: Job, after_units: float) -> tuple[CheckpointRecord, ...]:
        return ()

    def settled_tasks(self, job: Job) -> tuple[TaskRecord, ...]:
        return ()

    def rejected_checkpoints(self, job: Job) -> tuple[RejectedCheckpointRecord, ...]:
        return ()

    def unreported(self, job: Job, node_ids: Iterable[str]) -> frozenset[str]:
        return frozenset()

    def unreachable_s(self, job: Job, node_ids: Iterable[str]) -> Mapping[str, float]:
        return {}

    def last_heartbeat_at(self, job: Job, node_ids: Iterable[str]) -> Mapping[str, datetime]:
        return {}

    def drain(self, job: Job, node_ids: Iterable[str]) -> None:
        self._asked.update(node_ids)

    def is_drained(self, job: Job) -> frozenset[str]:
        return frozenset(self._asked)


class Interruptions(NoHazard):
    """Remembers the interruptions that a hazard model would learn from."""

    def __init__(self) -> None:
        self.pools: list[Pool] = []

    def record_interruption(self, pool: Pool, at: datetime) -> None:
        self.pools.append(pool)


class CloudScene(Generic[AnyAccount]):
    """One job that wants ``targets``, a ledger and an account that outlive controllers."""

    def __init__(self, account: AnyAccount, *targets: Target, ledger: Ledger | None = None) -> None:
        self.account = account
        self.ledger = ledger or MemoryLedger()
        self.runtime = Endless()
        self.hazards = Interruptions()
        self.targets = targets
        most = sum(target.nodes for target in targets)
        self.job = replace(
            task(nodes=(1, most), work_s=1e9, deadline_s=1e8),
            start_at=account.clock.now(),
            deadline_at=account.clock.now().replace(year=2100),
        )
        self.engine = self.restart()

    def restart(self) -> Engine:
        """A new controller, which knows only what the ledger and the account hold."""
        provider = self.account.provider = self.account.connect()
        world = World(
            (provider,),
            self.runtime,
            self.ledger,
            self.account.clock,
            Machines(),
            Powers(),
            self.hazards,
        )
        settings = EngineSettings(
            owner="me", tick_s=60.0, cooldown_s=90.0, new_key=deterministic_key
        )
        strategy = Follow(*self.targets)
        policy = rules("greedy_spot", limits=Limits(capacity_types=tuple(CapacityType)))
        self.engine = start_engine([self.job], policy, strategy, world, settings)
        return self.engine

    def go(self, ticks: int, every_s: float = 60) -> None:
        """Ticks, by default a minute apart."""
        for _ in range(ticks):
            self.engine.tick()
            self.account.clock.sleep(every_s)

    def events(self, kind: type[AnyEvent]) -> list[AnyEvent]:
        """The job's events of one type, in order."""
        return [r.event for r in self.ledger.events("job") if isinstance(r.event, kind)]

    def ends(self) -> list[NodeEnded]:
        """The ends of nodes; one whose time was an estimate gives way to its correction."""
        ends: list[NodeEnded] = []
        for event in self.events(NodeEnded):
            corrected = [e for e in ends if e.node_id == event.node_id and has_estimated_end(e)]
            ends = [e for e in ends if e not in corrected] + [event]
        return ends

    def check(self, nodes: int, go_on: Callable[[], None] | None = None) -> None:
        """The ledger says what runs, and what runs is what is desired; then all is released.

        ``go_on`` ticks until nothing more happens; by default five times.
        """
        account = self.account
        assert self.live() == set(account.alive())
        assert len(self.live()) == nodes
        self.engine.stop("the test is over")
        self.go(5) if go_on is None else go_on()
        assert not account.alive()
        launched = [event.node_id for event in self.events(NodeLaunched)]
        assert sorted(launched) == sorted(end.node_id for end in self.ends())
        assert len(launched) == len(set(launched))
        records = self.engine.journal.records
        found = find_orphans(account.provider, "me", records, account.clock.now(), 0)
        assert not [orphan for orphan in found if orphan.kind in account.orphan_kinds]

    def live(self) -> set[str]:
        """The nodes that live by the ledger."""
        return set(self.engine.journal.records["job"].live)
