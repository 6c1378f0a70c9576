"""Tenants that share an account's room and dollars: neither spends the other's, nor reads of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from costopt.daemon.http.schemas import to_json
from costopt.daemon.intake.admission import AdmittedJob, load_submission
from costopt.daemon.reader import TenantReader
from costopt.domain.account import Account, AccountGuards, Quota, Tenant
from costopt.domain.control import Submission
from costopt.domain.errors import SpecError
from costopt.domain.events import GuardTripped, LaunchIntended
from costopt.ledger.summary import JobState
from costopt.registry.registry import REGISTRY
from tests.support.daemon_fixtures import POLICY, DaemonScene

pytestmark = pytest.mark.process

OURS, THEIRS = "cobalt", "crimson"


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[DaemonScene]:
    tenants = {OURS: Tenant(OURS), THEIRS: Tenant(THEIRS, weight=3.0)}
    made = DaemonScene(tmp_path, Account(tenants=tenants))
    yield made
    made.close()


def hold_to(scene: DaemonScene, *quotas: Quota, **guards: float) -> None:
    scene.account = Account(
        quotas=quotas,
        tenants=scene.account.tenants,
        guards=AccountGuards(**guards),  # type: ignore[arg-type]
    )
    scene.restart()


def figures_of(scene: DaemonScene, tenant: str) -> str:
    """Everything that a tenant reads of its jobs."""
    reader = TenantReader(scene.daemon.service, tenant)
    events = [e for status in reader.jobs() for e in reader.events(status.submission.name)]
    held = [status.blocked_by for status in reader.jobs()]
    return json.dumps([*map(to_json, (*events, *reader.alerts())), held])


@pytest.mark.parametrize(
    ("quota", "guards", "said"),
    [
        (Quota("all", max_nodes=1), {}, "quota all allows 1 nodes across all jobs that share it"),
        (
            None,
            {"max_nodes": 1},
            "guards allows 1 nodes across all jobs that share it; this job needs 1",
        ),
        (None, {"max_usd_per_hour": 1.5}, "guards allows 1.5 $/h across all jobs that share it"),
        (None, {"max_usd": 0.5}, "the account's $0.50 are spent"),
        (None, {"max_usd_per_month": 0.5}, "the account's $0.50 of February 2023 are spent"),
        (None, {"max_launches_per_hour": 1}, "allows 1 launches an hour; 1 more would exceed this"),
    ],
    ids=["quota", "nodes", "per hour", "in all", "per month", "launches"],
)
def test_what_stops_one_reveals_nothing_of_the_other(
    scene: DaemonScene, quota: Quota | None, guards: dict[str, float], said: str
) -> None:
    hold_to(scene, *([] if quota is None else [quota]), **guards)
    for tenant in (THEIRS, OURS):
        scene.submit(f"{tenant}-a", f"{tenant}-b", tenant=tenant)
    scene.go(20)
    nodes = {tenant: _nodes(scene, tenant) for tenant in (OURS, THEIRS)}
    both = [figures_of(scene, tenant) for tenant in (OURS, THEIRS)]
    assert said in "".join(both)
    for text, other in zip(both, (THEIRS, OURS), strict=True):
        assert other not in text
        assert not [node for node in nodes[other] if f'"{node}"' in text]


def _nodes(scene: DaemonScene, tenant: str) -> set[str]:
    nodes = scene.cloud.inner.nodes("costopt")
    return {node.node_id for node in nodes if node.job.startswith(tenant)}


def test_a_policys_limits_bind_each_tenant_alone(scene: DaemonScene) -> None:
    policy = f"{POLICY}limits: {{max_nodes: 1}}\n"
    for tenant in (OURS, THEIRS):
        scene.submit(f"{tenant}-a", f"{tenant}-b", tenant=tenant, policy=policy)
    scene.go(10)
    living = [len(scene.living(f"{tenant}-{job}")) for tenant in (OURS, THEIRS) for job in "ab"]
    assert living == [1, 0, 1, 0]
    (tripped,) = scene.events(GuardTripped, f"{OURS}-b")
    assert tripped.guard == "max_nodes"


MONTHLY = {
    "account": (AccountGuards(max_usd_per_month=2.5), Tenant(OURS), ""),
    "tenant": (AccountGuards(), Tenant(OURS, max_usd_per_month=2.5), ""),
    "policy": (AccountGuards(), Tenant(OURS), "limits: {max_usd_per_month: 2.5}\n"),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("restarts", [False, True], ids=["same daemon", "another"])
@pytest.mark.parametrize(("guards", "ours", "limits"), MONTHLY.values(), ids=MONTHLY)
def test_a_month_counts_jobs_that_finished_in_it(
    scene: DaemonScene, guards: AccountGuards, ours: Tenant, limits: str, restarts: bool
) -> None:
    scene.account = Account(tenants={OURS: ours}, guards=guards)
    scene.restart()
    scene.submit("one", tenant=OURS, hours=2.0, policy=f"{POLICY}{limits}")
    scene.go(180)
    assert scene.job().summary.state is JobState.FINISHED
    assert 2.0 < scene.job().summary.usd < 2.5
    # Another file of the same policy: an edited one begins no new month.
    scene.submit("two", tenant=OURS, hours=2.0, policy=f"# edited\n{POLICY}{limits}")
    if restarts:
        scene.restart()
    scene.go(120)
    assert scene.living("two") == []
    assert len(scene.events(GuardTripped, "two")) == 1
    assert 2.5 <= sum(scene.job(job).summary.usd for job in ("one", "two")) < 2.6


def test_what_is_spent_of_each_limit_is_reported_after_each_tick(scene: DaemonScene) -> None:
    ours, theirs = Tenant(OURS, max_usd=9.0), Tenant(THEIRS)
    guards = AccountGuards(max_usd_per_month=20.0)
    scene.account = Account(tenants={OURS: ours, THEIRS: theirs}, guards=guards)
    scene.restart()
    scene.submit("one", tenant=OURS)
    scene.submit("two", tenant=THEIRS)
    scene.go(60)
    one, two = (scene.job(job).summary.usd for job in ("one", "two"))
    uses = {use.tenant: use for use in TenantReader(scene.daemon.service).budgets()}
    assert {tenant: use.limit_usd for tenant, use in uses.items()} == {None: 20.0, OURS: 9.0}
    assert uses[None].usd == pytest.approx(one + two)
    assert uses[OURS].usd == pytest.approx(one)
    assert [use.tenant for use in TenantReader(scene.daemon.service, OURS).budgets()] == [OURS]
    assert TenantReader(scene.daemon.service, THEIRS).budgets() == ()


@pytest.mark.parametrize("guard", ["max_usd", "max_usd_per_month"])
@pytest.mark.parametrize("cancelled", [False, True])
def test_a_job_that_cannot_be_read_any_more_still_counts(
    scene: DaemonScene, monkeypatch: pytest.MonkeyPatch, guard: str, cancelled: bool
) -> None:
    scene.submit("one", tenant=OURS, hours=2.0)
    scene.go(60)
    scene.daemon.service.pause("one", "me")
    scene.go(30)
    if cancelled:
        scene.daemon.service.cancel("one", "me")
    usd = scene.job().summary.usd

    def without_one(submission: Submission) -> AdmittedJob:
        if submission.name == "one":
            raise SpecError("a file of another version")
        return load_submission(submission)

    monkeypatch.setattr("costopt.daemon.loop.job_sync.load_submission", without_one)
    hold_to(scene, **{guard: 0.99 * usd})
    scene.submit("two", tenant=OURS)
    scene.go(20)
    assert [e.guard for e in scene.events(GuardTripped, "two")] == [f"account_{guard}"]
    assert scene.events(LaunchIntended, "two") == []


def test_jobs_that_ran_in_the_state_directory_without_a_daemon_count(scene: DaemonScene) -> None:
    scene.submit("one", tenant=OURS, hours=2.0)
    scene.go(180)
    scene.daemon.close()
    (scene.folder / REGISTRY).unlink()
    ours = Tenant(OURS, max_usd_per_month=2.0)
    scene.account = Account(tenants={OURS: ours, THEIRS: Tenant(THEIRS)})
    scene.daemon = scene.start()
    scene.submit("two", tenant=OURS)
    scene.submit("three", tenant=THEIRS)
    scene.go(20)
    assert [e.guard for e in scene.events(GuardTripped, "two")] == ["tenant_max_usd_per_month"]
    assert len(scene.living("three")) == 1
