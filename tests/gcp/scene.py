"""The engine over Compute Engine: whoever trains is not of interest, who runs is."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from costopt.domain.events import Event
from costopt.domain.ports import Ledger
from costopt.domain.view import Target
from costopt.engine.settings import Settings, counted_key
from costopt.engine.tick import Engine
from costopt.engine.world import World
from costopt.ledger.memory import MemoryLedger
from tests.aws.scene import Endless, Machines
from tests.engine_fixtures import Follow, Powers, rules, task
from tests.gcp.account import NewAccount
from tests.replay.cant_be_late import NoHazard

AnyEvent = TypeVar("AnyEvent", bound=Event)


class GcpScene:
    """One job that wants ``targets``, a ledger and a project that outlive controllers."""

    def __init__(self, project: NewAccount, *targets: Target, ledger: Ledger | None = None) -> None:
        self.project = project
        self.ledger = ledger or MemoryLedger()
        self.runtime = Endless()
        self.targets = targets
        most = sum(target.nodes for target in targets)
        self.job = replace(
            task(nodes=(1, most), work_s=1e9, deadline_s=1e8),
            start_at=project.clock.now(),
            deadline_at=project.clock.now().replace(year=2100),
        )
        self.engine = self.restart()

    def restart(self) -> Engine:
        """A new controller, which knows only what the ledger and the project hold."""
        provider = self.project.provider = self.project.connect()
        world = World(
            (provider,),
            self.runtime,
            self.ledger,
            self.project.clock,
            Machines(),
            Powers(),
            NoHazard(),
        )
        settings = Settings(owner="me", tick_s=60.0, cooldown_s=90.0, new_key=counted_key)
        strategy = Follow(*self.targets)
        self.engine = Engine([self.job], rules("greedy_spot"), strategy, world, settings)
        return self.engine

    def go(self, ticks: int) -> None:
        """Ticks, a minute apart."""
        for _ in range(ticks):
            self.engine.tick()
            self.project.clock.sleep(60)

    def events(self, kind: type[AnyEvent]) -> list[AnyEvent]:
        """The job's events of one type, in order."""
        return [r.event for r in self.ledger.events("job") if isinstance(r.event, kind)]

    def live(self) -> set[str]:
        """The nodes that live by the ledger."""
        return set(self.engine.journal.records["job"].live)
