"""A daemon over a simulated cloud whose faults a test turns on and off, ticked by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from costopt.controller.forecasts import RecordedForecasts
from costopt.controller.site import LiveSite
from costopt.daemon.daemon import Daemon
from costopt.daemon.reader import TenantReader
from costopt.daemon.settings import DaemonSettings
from costopt.daemon.shared_state import JobStatus
from costopt.domain.account import Account
from costopt.domain.control import Mode, Registry
from costopt.domain.errors import StoreError
from costopt.domain.events import Event
from costopt.domain.fleet import Node
from costopt.domain.history import PoolHistory
from costopt.domain.job import Job
from costopt.energy.live import LiveCarbon
from costopt.engine.loop import VirtualClock
from costopt.ledger.sql_ledger import SqlLedger, open_sqlite_ledger
from costopt.registry.registry import REGISTRY, SqlRegistry, open_registry
from tests.support.engine_fixtures import SAFE, SPOT_A, FaultyCloud, always
from tests.support.failing_runtime import FailingRuntime
from tests.support.live_run import PATIENCE_S
from tests.support.market_fixtures import T0, market
from tests.support.simulated_site import simulated_site

POLICY = """
kind: policy
version: 1
name: plain
strategy: {name: greedy_spot}
risk: {reserve: 10m}
"""

AnyEvent = TypeVar("AnyEvent", bound=Event)


def document(
    name: str = "one",
    tenant: str = "default",
    hours: float = 4.0,
    nodes: int = 1,
    more: str = "",
    deadline: str = "100h",
) -> str:
    """A job of so many hours on one V100 per node."""
    return (
        f"kind: job\nversion: 1\nname: {name}\ntenant: {tenant}\n"
        f"work: {{amount: {hours * 3600 * nodes:.0f}, unit: steps}}\ndeadline: {deadline}\n"
        f"resources: {{gpu_models: [V100], min_nodes: {nodes}, max_nodes: {nodes}}}\n"
        f"throughput: {{points: [{{gpu: V100, gpus: {nodes}, units_per_s: {nodes}}}]}}\n"
        f"checkpoint: {{uri: saves/{name}, size_gib: 1, save: 10s, restore: 1m, interval: 10m}}\n"
        f"startup: 2m\nrun: [python, train.py]\n{more}"
    )


def unhurried(folder: Path, mode: Mode, tick_s: float = 60.0) -> DaemonSettings:
    """How long anything takes by the wall decides nothing."""
    return DaemonSettings(
        folder,
        mode,
        tick_s=tick_s,
        answer_s=PATIENCE_S,
        decide_s=PATIENCE_S,
        launch_s=PATIENCE_S,
        orphan_grace_s=600.0,
    )


@dataclass
class DaemonScene:
    """A cloud and files that outlive the daemons made over them."""

    folder: Path
    account: Account = field(default_factory=Account)
    histories: Sequence[PoolHistory] = (always(SPOT_A, 20, 1.0), always(SAFE, 20, 3.0))
    mode: Mode = Mode.ENFORCE
    live: LiveCarbon | None = None

    def __post_init__(self) -> None:
        self.clock = VirtualClock(T0)
        self.cloud = FaultyCloud(self.clock, self.histories, 120.0)
        self.runtime = FailingRuntime(self.cloud.runtime)
        self.unready: dict[str, str] = {}
        self.retried: list[str] = []
        self.said: list[str] = []
        self.registry: Registry
        self._open: list[SqlLedger | SqlRegistry] = []
        self.daemon = self.start()

    def start(self) -> Daemon:
        """One more daemon over the same files and cloud."""
        registry = open_registry(self.folder / REGISTRY)
        ledger = open_sqlite_ledger(self.folder / "ledger.sqlite")
        self._open += [registry, ledger]
        self.registry, self.ledger = registry, ledger
        settings = unhurried(self.folder, self.mode)
        return Daemon(self._site(), registry, ledger, self.account, settings, self.said.append)

    def restart(self) -> Daemon:
        """A daemon in place of the one that was, which was killed."""
        self.daemon.close()
        self.daemon = self.start()
        return self.daemon

    def close(self) -> None:
        self.daemon.close()
        for each in self._open:
            each.close()

    def submit(
        self,
        *names: str,
        tenant: str = "default",
        hours: float = 4.0,
        deadline: str = "100h",
        policy: str = POLICY,
    ) -> None:
        """Hand jobs in."""
        for name in names:
            text = document(name, tenant, hours, deadline=deadline)
            service = self.daemon.service
            service.submit(service.read(text, policy, workdir=str(self.folder), who="me"))

    def go(self, minutes: int) -> None:
        """Ticks for this long, with all that the schedule does between them."""
        for _ in range(minutes):
            self.daemon.tick()
            self.daemon.readiness.prepare()
            self.daemon.readiness.join()
            self.clock.sleep(60)

    @property
    def reader(self) -> TenantReader:
        """Sees all tenants."""
        return TenantReader(self.daemon.service)

    def job(self, name: str = "one") -> JobStatus:
        return self.reader.job(name)

    def events(self, kind: type[AnyEvent], job: str = "one") -> list[AnyEvent]:
        """A job's events of one type, in order."""
        return [r.event for r in self.ledger.events(job) if isinstance(r.event, kind)]

    def living(self, job: str = "one") -> list[Node]:
        """Its nodes in the cloud."""
        nodes = self.cloud.inner.nodes("costopt")
        return [node for node in nodes if node.state.is_alive and node.job == job]

    def _site(self) -> LiveSite:
        site = simulated_site(
            self.clock,
            self.cloud,
            self.runtime,
            market(*self.histories),
            self._receive,
            self._retry,
        )
        if self.live is None:
            return site
        forecasts = RecordedForecasts(None, self.live)
        return replace(site, carbon=self.live, live_carbon=self.live, forecasts=forecasts)

    def _receive(self, job: Job) -> None:
        if job.name in self.unready:
            raise StoreError(self.unready[job.name])

    def _retry(self, job: Job) -> None:
        self.retried.append(job.name)
