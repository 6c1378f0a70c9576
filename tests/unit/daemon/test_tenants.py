"""Tenants of one daemon: whatever is asked over HTTP, nothing of another tenant is reported."""

from __future__ import annotations

import http.client
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from costopt.daemon.http.app import api_operations
from costopt.daemon.pages.layout import PLACES
from costopt.daemon.shared_state import BudgetUse, FleetNode, TickSnapshot
from costopt.daemon.watch.alert_kinds import AlertKind
from costopt.domain.account import Account, Tenant
from costopt.domain.control import ActionKind, Proposal, Scope, Submission
from costopt.domain.events import DecisionMade, GuardTripped, NodeLaunched
from costopt.domain.fleet import NodeState
from costopt.ledger.job_account import JobAccount
from tests.support.daemon_api import JOB, method_of
from tests.support.daemon_pages import NOW, POLICY, Shown, shown
from tests.support.sample_run import SPOT_A

OURS, THEIRS = "blue", "crimson"
USD_PER_HOUR = {OURS: 7.0, THEIRS: 31.337}
HOURS = 2
NAMES = {"job": "{}-llm", "decision": "{}-llm-d1", "proposal": "{}-llm-p1", "node": "i-{}"}
SPENT_USD = {tenant: HOURS * usd for tenant, usd in USD_PER_HOUR.items()}
MARKS = (
    THEIRS,
    "31.337", "31.34", "31337000", f"{SPENT_USD[THEIRS]:.2f}", f"{SPENT_USD[THEIRS]:.3f}",
    f"{sum(USD_PER_HOUR.values()):.2f}", f"{sum(SPENT_USD.values()):.2f}",
    "storm over all", "i-0orphan",
)  # fmt: skip
"""What stands nowhere else: names, ids, a tenant of the account, dollars alone and summed."""
ACCOUNT = Account(
    tenants={
        OURS: Tenant(OURS, prefixes=("s3://bucket",)),
        THEIRS: Tenant(THEIRS, max_usd=31.337, prefixes=("s3://crimson",)),
    }
)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    with shared(tmp_path_factory.mktemp("tenants")) as each:
        yield each


@contextmanager
def shared(folder: Path) -> Iterator[Shown]:
    """A daemon with a job of each tenant."""
    with shown(folder, fill=False, account=ACCOUNT) as each:
        for tenant in USD_PER_HOUR:
            _submit_each(each, tenant)
        _publish(each)
        each.board.alert(NOW, AlertKind.INTERRUPTIONS, "", "a storm over all: 31.337 nodes")
        each.board.orphans = ("i-0orphan",)
        each.board.tick_failure = f"an event of {THEIRS}-llm cannot be read"
        yield each


@pytest.fixture(scope="module")
def token(daemon: Shown) -> str:
    return daemon.token(Scope.SUBMIT, tenant=OURS)


def _submit_each(daemon: Shown, tenant: str) -> None:
    """A job that trains and is held to its guards, with one of everything that tells of it."""
    job, node, usd = f"{tenant}-llm", f"i-{tenant}", USD_PER_HOUR[tenant]
    text = JOB.format(name=job) + f"tenant: {tenant}\n"
    began = NOW - timedelta(hours=HOURS)
    daemon.registry.submit(Submission(job, tenant, 0, text, POLICY, "/srv", began, f"{tenant}-ci"))
    decision = DecisionMade(
        at=NOW, job=job, decision_id=f"{job}-d1", targets=((SPOT_A, 1),), reason=f"for {tenant}",
        slack_s=60.0, alternatives=((f"1 × {SPOT_A}", usd, tenant),),
    )  # fmt: skip
    launched = NodeLaunched(
        at=began, job=job, key="k", node_id=node, pool=SPOT_A, launched_at=began,
        micros_per_hour=round(usd * 1e6), idle_w=1, busy_w=2, pue=1, gco2e_per_kwh=None,
        energy_basis="modelled",
    )  # fmt: skip
    tripped = GuardTripped(at=NOW, job=job, guard="budget", message=f"{tenant} spent ${usd}")
    daemon.ledger.append(launched, decision, tripped)
    daemon.registry.propose(
        Proposal(f"{job}-p1", job, ActionKind.LAUNCH, SPOT_A, 1, tenant, NOW, usd_per_hour=usd)
    )
    daemon.registry.set_priority(job, 1, f"{tenant}-ci", NOW)
    daemon.board.alert(NOW, AlertKind.BUDGET, job, f"{job} has spent ${usd}")


def _publish(daemon: Shown) -> None:
    accounts = {}
    for submission in daemon.registry.submissions():
        account = accounts[submission.name] = JobAccount(submission.name)
        for recorded in daemon.ledger.events(submission.name):
            account.apply(recorded.event)
    nodes = tuple(
        FleetNode(
            f"i-{tenant}", f"{tenant}-llm", tenant, SPOT_A, NodeState.RUNNING, NOW, usd, False, None
        )
        for tenant, usd in USD_PER_HOUR.items()
    )
    daemon.board.publish(
        TickSnapshot(
            NOW,
            nodes=nodes,
            nodes_of={node.job: (node,) for node in nodes},
            summaries={name: account.summary(NOW) for name, account in accounts.items()},
            decisions={n: a.last_decision for n, a in accounts.items() if a.last_decision},
            slacks={node.job: 60.0 for node in nodes},
            held={node.job: f"{node.tenant} waits" for node in nodes},
            budgets=(
                BudgetUse(None, "dollars in all", sum(SPENT_USD.values()), 31.337),
                *(
                    BudgetUse(tenant, "dollars in all", usd, 50.0)
                    for tenant, usd in SPENT_USD.items()
                ),
            ),
        ),
        0.02,
    )


def ask(
    daemon: Shown, token: str, method: str, target: str, body: object = None
) -> tuple[int, str]:
    """Status, and head and body as they came."""
    connection = http.client.HTTPConnection(daemon.url.removeprefix("http://"), timeout=20)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, target, data, headers)
        response = connection.getresponse()
        return response.status, f"{response.headers}{response.read().decode()}"
    finally:
        connection.close()


def pages(whose: str) -> list[str]:
    """Every page, and those of the job and the decision of ``whose``."""
    alone = [f"/jobs/{whose}-llm", f"/decisions/{whose}-llm-d1"]
    return [*(path for path, _ in PLACES), *alone]


def routes(daemon: Shown, whose: str) -> Iterator[tuple[str, str, object]]:
    """Method, target and body of everything that can be asked, with the names of ``whose``."""
    names = {part: name.format(whose) for part, name in NAMES.items()}
    names |= {"token": f"{whose}-ci", "task": "0", "command": "c-1"}
    text = JOB.format(name=f"{whose}-new") + f"tenant: {whose}\n"
    bodies: dict[str, object] = {"submitJob": {"job": text}, "planJob": {"job": text}}
    bodies["reprioritizeJob"] = {"priority": 7}
    bodies["runCommand"] = {"command": ["true"]}
    for operation in sorted(api_operations(), key=lambda op: op.unique_id == "cancelJob"):
        body = bodies.get(operation.unique_id) if operation.body_field else None
        yield method_of(operation), operation.path.format(**names), body
        if operation.unique_id == "jobLogs":
            yield "GET", f"{operation.path.format(**names)}?node={names['node']}", None
    for path in (*pages(whose), "/openapi.json", "/metrics", "/login", "/nowhere"):
        yield "GET", path, None


@pytest.mark.slow
def test_an_admin_sees_the_marks(daemon: Shown) -> None:
    """Else the search below would find nothing to hide."""
    admin = daemon.token(Scope.ADMIN)
    reported = "".join(ask(daemon, admin, "GET", page)[1] for page in pages(THEIRS))
    reported += "".join(
        ask(daemon, admin, method, target)[1]
        for method, target, _ in routes(daemon, THEIRS)
        if method == "GET"
    )
    assert not [mark for mark in MARKS if mark not in reported]


def test_nothing_of_another_tenant_is_reported_anywhere(tmp_path: Path) -> None:
    with shared(tmp_path) as daemon:
        token, answered = daemon.token(Scope.SUBMIT, tenant=OURS), Counter[int]()
        for method, target, body in routes(daemon, OURS):
            status, reported = ask(daemon, token, method, target, body)
            answered[status] += 1
            assert not [mark for mark in MARKS if mark in reported], (method, target)
    assert answered[200] + answered[201] > 30
    assert set(answered) == {200, 201, 202, 403, 404, 409, 503}


def test_another_tenants_names_are_as_unknown_as_any(daemon: Shown, token: str) -> None:
    """Word for word, on every route, so that nobody finds out which names there are."""
    for theirs, nobodys in zip(routes(daemon, THEIRS), routes(daemon, "nobody7"), strict=True):
        foreign, unknown = (ask(daemon, token, *each) for each in (theirs, nobodys))
        assert _plain(foreign, THEIRS) == _plain(unknown, "nobody7"), theirs
        if f"{THEIRS}-llm" in theirs[1]:
            assert foreign[0] in (403, 404)


def test_another_tenants_job_is_never_read_so_that_no_time_reveals_it(
    daemon: Shown, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(name: str) -> Submission:
        raise AssertionError(name)

    monkeypatch.setattr(daemon.registry, "submission", read)
    for theirs in routes(daemon, THEIRS):
        if f"{THEIRS}-llm" in theirs[1]:
            assert ask(daemon, token, *theirs)[0] in (403, 404), theirs


def _plain(response: tuple[int, str], name: str) -> tuple[int, str]:
    status, reported = response
    undated = re.sub(r"(?m)^(date|content-length): .*$|age_s\":[0-9.]+", "", reported)
    return status, undated.replace(name, "…")


def test_filters_find_nothing_of_others(daemon: Shown, token: str) -> None:
    for path, _ in PLACES:
        status, reported = ask(daemon, token, "GET", f"{path}?q={THEIRS}")
        assert status == 200
        assert THEIRS not in reported.replace(f'value="{THEIRS}"', "").replace(f"q={THEIRS}", "")


def test_a_tenant_sees_all_of_its_own(daemon: Shown, token: str) -> None:
    shown_on = {path: ask(daemon, token, "GET", path)[1] for path in pages(OURS)}
    for path, said in (
        ("/", ["i-blue", "blue-llm", "$7.00/h", "has spent $7.0", "$14.00"]),
        ("/jobs", ["blue-llm", "blue waits", "$14.00", "1 open job, 0 ended."]),
        ("/jobs/blue-llm", ["i-blue", "$14.00", "blue spent"]),
        ("/decisions", ["blue-llm-d1"]),
        ("/decisions/blue-llm-d1", ["for blue", "$7.00"]),
        ("/ledger", ["$14.00", "of 1 in all", "blue: $14.00", "$14.00 of $50.00"]),
        ("/guards", ["$14.00 of $50.00", "blue waits", "the last tick failed"]),
        ("/proposals", ["blue-llm-p1", "1<span"]),
    ):
        for words in said:
            assert words in shown_on[path], (path, words)
    assert all("of tenant blue" in reported for reported in shown_on.values())


def test_nothing_was_changed_by_looking(daemon: Shown, token: str) -> None:
    before = daemon.registry.changes()
    for method, target, body in routes(daemon, THEIRS):
        ask(daemon, token, method, target, body)
    assert daemon.registry.changes() == before


def test_a_tenant_without_jobs_has_empty_pages(daemon: Shown) -> None:
    token = daemon.token(Scope.READ, tenant="green")
    for path, _ in PLACES:
        status, reported = ask(daemon, token, "GET", path)
        assert status == 200
        assert not [mark for mark in (*MARKS, OURS, "$14.00") if mark in reported], path
