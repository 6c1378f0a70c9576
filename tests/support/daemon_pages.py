"""The daemon's pages served by a real uvicorn on loopback, with a fleet worth looking at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from costopt.daemon.http.app import build_app
from costopt.daemon.http.auth import SESSION_COOKIE, ApiContext
from costopt.daemon.http.server import ApiServer, bind_tcp, bind_unix
from costopt.daemon.pages.routes import page_routes
from costopt.daemon.service import DaemonService
from costopt.daemon.settings import DaemonSettings
from costopt.daemon.shared_state import BudgetUse, FleetNode, SharedState, TickSnapshot
from costopt.daemon.watch.alert_kinds import AlertKind
from costopt.domain.account import Account, AccountGuards, Tenant
from costopt.domain.control import (
    ActionKind,
    DesiredState,
    Proposal,
    ProposalState,
    Scope,
    Submission,
)
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.events import DecisionMade, Event, GuardTripped, JobSubmitted
from costopt.domain.fleet import NodeState
from costopt.domain.market import Offer, Pool
from costopt.engine.loop import WallClock
from costopt.ledger.base import MemoryLedger
from costopt.ledger.job_account import JobAccount
from costopt.registry.registry import SqlRegistry, open_registry
from costopt.registry.tokens import SqlTokenStore
from tests.support.daemon_api import TextLogs
from tests.support.sample_run import (
    SPOT_A,
    SPOT_B,
    SPOT_C,
    START_AT,
    UNINTERRUPTIBLE,
    sample_events,
)

NOW = START_AT + timedelta(hours=3, minutes=30)
HOSTILE = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>\"'&"
MARKUP = "<img src=x>&amp;<b>"
RUNNING = "bert-nightly"
FINISHED = "llama-7b-finetune"
PAUSED = "vision-sweep-2026-03"
STRANGE = "a\"><img src=x onerror=document.title='owned'>"
GUARDS = AccountGuards(max_usd_per_month=10_000.0, max_usd_per_hour=200.0, max_nodes=64)
ACCOUNT = Account(tenants={"research": Tenant("research", 2.0, max_nodes=16)}, guards=GUARDS)
POLICY = "kind: policy\nversion: 1\nname: cheapest\nlimits: {max_usd: 500}\n"
JOB = """\
name: trains
work: {amount: 33000, unit: steps}
deadline: 5h
throughput: {points: [{gpu: H100, gpus: 1, units_per_s: 2}]}
checkpoint: {uri: checkpoints}
budget: {usd_per_hour: 64}
"""


@dataclass
class Shown:
    """A daemon whose pages can be opened."""

    service: DaemonService
    registry: SqlRegistry
    ledger: MemoryLedger
    board: SharedState
    tokens: SqlTokenStore
    url: str

    def token(self, scope: Scope = Scope.READ, tenant: str | None = None) -> str:
        name = f"t{len(self.tokens.tokens())}"
        return self.tokens.add(name, [scope], "test", datetime.now(UTC), tenant)

    def cookie(self, plain: str | None = None) -> str:
        """A browser's, which has handed this token over, or one that may look."""
        return f"{SESSION_COOKIE}={self.tokens.session_of(plain or self.token())}"

    def fill(self) -> None:
        """A fleet of four jobs: one trains, one has finished, one is late, one is hostile."""
        self._add(FINISHED, "research", sample_events(FINISHED), NOW + timedelta(hours=3))
        running = [e for e in sample_events(RUNNING) if e.at <= NOW]
        self._add(RUNNING, "research", [*running, _weighed(RUNNING)], NOW)
        self._add(PAUSED, "vision", [e for e in sample_events(PAUSED) if e.at <= NOW][:2], NOW, 5)
        self._add(STRANGE, HOSTILE, [*_strange(), _weighed(STRANGE)], NOW)
        self.registry.set_desired_state(PAUSED, DesiredState.PAUSED, HOSTILE, NOW)
        self._propose()
        self.board.alert(NOW, AlertKind.BUDGET, RUNNING, f"{RUNNING} has spent 90 % of its dollars")
        self.board.alert(NOW, AlertKind.INTERRUPTIONS, "", f"storm in {HOSTILE}")
        self.board.record_task_run("tick", "ok")
        self.board.record_task_run("prices aws", "failed")
        self.board.orphans = (HOSTILE, "i-0orphan")
        self.board.publish(self._snapshot(), 0.02)

    def _add(
        self, name: str, tenant: str, events: list[Event] | tuple[Event, ...], now: datetime,
        priority: int = 0,
    ) -> None:  # fmt: skip
        self.registry.submit(
            Submission(name, tenant, priority, JOB, POLICY, "/srv/jobs", START_AT, "test")
        )
        self.ledger.append(*events)

    def _propose(self) -> None:
        launch = Proposal(
            f"{RUNNING}-p1", RUNNING, ActionKind.LAUNCH, SPOT_B, 2,
            "cheapest spot pool that keeps the deadline", NOW, usd_per_hour=24.7,
        )  # fmt: skip
        drain = Proposal(
            "strange-p2", STRANGE, ActionKind.DRAIN, SPOT_C, 1, HOSTILE, NOW, node_id=HOSTILE
        )
        for proposal in (launch, replace(launch, id=f"{RUNNING}-p2", pool=SPOT_C), drain):
            self.registry.propose(proposal)
        self.registry.answer(f"{RUNNING}-p2", ProposalState.REJECTED, HOSTILE, NOW)

    def _snapshot(self) -> TickSnapshot:
        accounts = {}
        for submission in self.registry.submissions():
            account = accounts[submission.name] = JobAccount(submission.name)
            for recorded in self.ledger.events(submission.name):
                account.apply(recorded.event)
        end = NOW + timedelta(hours=3)
        strange = replace(_node("i-0x", STRANGE), node_id=HOSTILE, tenant=HOSTILE, draining=True)
        nodes = (_node("gce-c1", RUNNING), _node("gce-c2", RUNNING, reclaimed=True), strange)
        return TickSnapshot(
            NOW,
            nodes=nodes,
            nodes_of={RUNNING: nodes[:2], STRANGE: nodes[2:]},
            summaries={n: a.summary(end if n == FINISHED else NOW) for n, a in accounts.items()},
            decisions={n: a.last_decision for n, a in accounts.items() if a.last_decision},
            slacks={
                n: a.last_decision.slack_s
                for n, a in accounts.items()
                if a.last_decision is not None and a.last_decision.slack_s is not None
            },
            held={PAUSED: "its owner has paused it", STRANGE: f"guard max_nodes: {HOSTILE}"},
            offers=_offers(),
            budgets=(
                BudgetUse(None, "dollars per calendar month", 8_660.17, 10_000.0),
                BudgetUse("research", "dollars in all", 506.61, 500.0),
                BudgetUse(HOSTILE, "dollars in all", 153.56, 1_000.0),
            ),
            silent={"gcp": f"no answer within 10 s: {HOSTILE}"},
        )


def _weighed(job: str) -> DecisionMade:
    chosen = f"2 × {SPOT_C}"
    return DecisionMade(
        at=NOW, job=job, decision_id=f"{job}-d9", targets=((SPOT_C, 2),),
        reason="next cheapest spot pool outside the cooldown", rule="cooldown", slack_s=5_400.0,
        alternatives=(
            (chosen, 71.2, "19.90 $/h, 0.05 interruptions per node-hour, prior"),
            (f"2 × {UNINTERRUPTIBLE}", 160.1, HOSTILE),
            ("wait", None, "would use up the slack"),
        ),
    )  # fmt: skip


def _strange() -> list[Event]:
    """The sample's first hours, with hostile words wherever a provider or a user may put them."""
    events = [_hostile(e) for e in sample_events(STRANGE) if e.at <= NOW]
    return [*events, GuardTripped(at=NOW, job=STRANGE, guard=HOSTILE, message=HOSTILE)]


def _hostile(event: Event) -> Event:
    if isinstance(event, JobSubmitted):
        return replace(event, policy=HOSTILE, strategy=HOSTILE, unit=HOSTILE)
    if getattr(event, "pool", None) == SPOT_A:
        return replace(event, pool=SPOT_A.replace("us-east-2a", MARKUP))  # type: ignore[call-arg]
    return event


def _node(node_id: str, job: str, *, reclaimed: bool = False) -> FleetNode:
    return FleetNode(
        node_id, job, "research", SPOT_C, NodeState.RUNNING, NOW - timedelta(minutes=50), 19.9,
        False, NOW + timedelta(seconds=100) if reclaimed else None,
    )  # fmt: skip


def _offers() -> tuple[Offer, ...]:
    offers = []
    for i, (pool, usd) in enumerate(
        ((SPOT_A, 21.4), (SPOT_B, 24.7), (SPOT_C, 19.9), (UNINTERRUPTIBLE, 55.04))
    ):
        seen = NOW - timedelta(minutes=2 + 50 * i)
        price = Estimate.exact(usd, Basis.MEASURED, "spot price history", seen)
        hazard = Estimate(0.05, 0.02, 0.11, Basis.PRIOR, "interruption bucket 5-10 %")
        offers.append(Offer(Pool.parse(pool), price, hazard, None if i else 0))
    hostile = replace(Pool.parse(SPOT_A), zone="<b>1a</b>", instance_type=HOSTILE)
    offers.append(Offer(hostile, None, None, None, unknown_because=f"no price: {HOSTILE}"))
    return tuple(offers)


@contextmanager
def shown(folder: Path, *, fill: bool = True, account: Account = ACCOUNT) -> Iterator[Shown]:
    """The pages, until the block ends."""
    registry, ledger = open_registry(folder / "registry.sqlite"), MemoryLedger()
    tokens = registry.tokens
    clock = WallClock()
    board = SharedState(NOW)
    service = DaemonService(
        registry, ledger, clock, board, DaemonSettings(folder), TextLogs(), account
    )
    app = build_app(ApiContext(service, tokens, clock, (folder,)), page_routes(service))
    daemon = Shown(service, registry, ledger, board, tokens, "")
    if fill:
        daemon.fill()
    network = bind_tcp("127.0.0.1:0")
    host, port = network.getsockname()[:2]
    daemon.url = f"http://{host}:{port}"
    server = ApiServer(app, bind_unix(folder / "s"), network)
    server.start()
    try:
        yield daemon
    finally:
        server.stop()
        registry.close()
