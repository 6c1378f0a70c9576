"""A daemon's service without its loop, served by a real uvicorn on a socket and on loopback."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from costopt.client.client import DaemonClient, parse_address
from costopt.controller.node_logs import TaskLog
from costopt.daemon.http.app import build_app
from costopt.daemon.http.auth import ApiContext
from costopt.daemon.http.routes import ApiRoute
from costopt.daemon.http.server import ApiServer, bind_tcp, bind_unix
from costopt.daemon.service import DaemonService
from costopt.daemon.settings import DaemonSettings
from costopt.daemon.shared_state import FleetNode, SharedState, TickSnapshot
from costopt.daemon.watch.alert_kinds import AlertKind
from costopt.domain.account import UNLIMITED, Account
from costopt.domain.control import ActionKind, AuditEntry, Proposal, Scope
from costopt.domain.errors import SpecError
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.events import DecisionMade, GuardTripped, NodeLaunched
from costopt.domain.fleet import NodeState
from costopt.domain.market import CapacityType, Offer, Pool
from costopt.domain.object_store import ObjectStore
from costopt.engine.loop import WallClock
from costopt.ledger.base import MemoryLedger
from costopt.protocol.node_logs import LogChunk
from costopt.registry.registry import SqlRegistry, open_registry
from costopt.registry.tokens import SqlTokenStore
from costopt.store.folder import FileStore

POOL = Pool("aws", "us-east-1", "us-east-1a", "p3.2xlarge", CapacityType.SPOT)
SAFE = POOL.with_capacity_type(CapacityType.ON_DEMAND)
JOB = """\
kind: job
version: 1
name: {name}
work: {{amount: 100, unit: steps}}
deadline: 30d
resources: {{gpu_models: [V100]}}
throughput: {{points: [{{gpu: V100, gpus: 1, units_per_s: 1}}]}}
checkpoint: {{uri: "s3://bucket/{name}", size_gib: 1, save: 10s, restore: 1m}}
startup: 5m
run: [python, train.py]
"""


class TextLogs:
    """Logs as a dictionary, by job and node."""

    def __init__(self) -> None:
        self.texts: dict[tuple[str, str], str] = {}
        self.ended: set[str] = set()
        self.store: ObjectStore = FileStore(Path("/nonexistent"))

    def read_task(self, job: str, task: int) -> TaskLog:
        text = self.texts.get((job, str(task)))
        if text is None:
            raise SpecError(f"task {task} of job {job!r} has no log")
        return TaskLog(job, task, text)

    def read(self, job: str, node_id: str, after: int) -> LogChunk:
        text = self.texts.get((job, node_id))
        if text is None:
            raise SpecError(f"node {node_id!r} of job {job!r} has no log")
        return LogChunk(job, node_id, text[after:], len(text), node_id in self.ended)


@dataclass
class Served:
    """A daemon that answers, and what a test turns."""

    service: DaemonService
    registry: SqlRegistry
    ledger: MemoryLedger
    board: SharedState
    logs: TextLogs
    tokens: SqlTokenStore
    context: ApiContext
    socket_path: Path
    url: str

    @property
    def local(self) -> DaemonClient:
        """As the socket's owner."""
        return DaemonClient(parse_address(f"unix:{self.socket_path}"))

    def bearer(self, *scopes: Scope) -> DaemonClient:
        """As the bearer of a new token with these scopes; without any as nobody."""
        return DaemonClient(parse_address(self.url), self.token(*scopes) if scopes else None)

    def token(self, *scopes: Scope, tenant: str | None = None) -> str:
        name = f"t{len(self.tokens.tokens())}"
        return self.tokens.add(name, scopes, "test", datetime.now(UTC), tenant)

    def changes(self) -> tuple[AuditEntry, ...]:
        """What anybody but the test itself told the daemon."""
        return tuple(each for _, each in self.registry.changes() if each.who != "test")

    def submit(self, name: str, tenant: str = "default") -> None:
        text = JOB.format(name=name) + f"tenant: {tenant}\n"
        self.service.submit(self.service.read(text, "cheapest", workdir="/", who="test"))

    def fill(self) -> None:
        """Two jobs, one of them with a node, a decision and a log; a proposal; an alert."""
        self.submit("one")
        self.submit("two")
        now = datetime.now(UTC)
        decision = DecisionMade(
            at=now, job="one", decision_id="one-d1", targets=((str(POOL), 1),), reason="cheapest",
            slack_s=3600.0, alternatives=(("wait", None, "idle"), (f"1 × {POOL}", 3.0, "spot")),
        )  # fmt: skip
        tripped = GuardTripped(at=now, job="one", guard="budget", message="spent")
        launched = NodeLaunched(
            at=now, job="one", key="k", node_id="i-1", pool=str(POOL), launched_at=now,
            micros_per_hour=1_000_000, idle_w=1, busy_w=2, pue=1, gco2e_per_kwh=None,
            energy_basis="modelled",
        )  # fmt: skip
        self.ledger.append(decision, launched, tripped)
        node = FleetNode(
            "i-1", "one", "default", str(POOL), NodeState.RUNNING, now, 1.0, False, None
        )  # fmt: skip
        price = Estimate.exact(1.0, Basis.LISTED, "test", now - timedelta(seconds=30))
        hazard = Estimate(0.05, 0.02, 0.1, Basis.PRIOR, "test")
        self.logs.texts["one", "i-1"] = "step 1\nstep 2\n"
        self.logs.texts["one", "0"] = "task 0\n"
        self.registry.propose(
            Proposal("p-1", "one", ActionKind.LAUNCH, str(POOL), 1, "cheapest", now)
        )  # fmt: skip
        self.board.alert(now, AlertKind.BUDGET, "one", "job one has spent its budget")
        self.board.publish(
            TickSnapshot(
                now,
                nodes=(node,),
                nodes_of={"one": (node,)},
                decisions={"one": decision},
                slacks={"one": 3600.0},
                offers=(Offer(POOL, price, hazard, None), Offer(SAFE, price, None, None)),
                silent={"gcp": "timed out"},
            ),
            0.02,
        )


def method_of(route: ApiRoute) -> str:
    """The one method of an operation."""
    return min(route.methods or ())


@contextmanager
def served(folder: Path, *, fill: bool = True, account: Account = UNLIMITED) -> Iterator[Served]:
    """A daemon in ``folder``, until the block ends."""
    jobs = folder / "jobs"
    jobs.mkdir(exist_ok=True)
    registry, ledger, logs = open_registry(folder / "registry.sqlite"), MemoryLedger(), TextLogs()
    logs.store = FileStore(folder / "store")
    tokens, clock = registry.tokens, WallClock()
    board = SharedState(clock.now())
    service = DaemonService(registry, ledger, clock, board, DaemonSettings(folder), logs, account)
    context = ApiContext(service, tokens, clock, (jobs,))
    path = folder / "daemon.sock"
    local, network = bind_unix(path), bind_tcp("127.0.0.1:0")
    url = _url(network)
    daemon = Served(service, registry, ledger, board, logs, tokens, context, path, url)
    if fill:
        daemon.fill()
    server = ApiServer(build_app(context), local, network)
    server.start()
    try:
        yield daemon
    finally:
        server.stop()
        registry.close()


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{host}:{port}"
