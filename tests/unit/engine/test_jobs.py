"""One engine, many jobs: each under its own policy, coming, going, stopping and sharing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace

import pytest

from costopt.domain.account import Account, AccountGuards, Tenant
from costopt.domain.errors import LedgerError
from costopt.domain.events import (
    DecisionMade,
    GuardTripped,
    LaunchIntended,
    RunStopped,
    WorkLost,
)
from costopt.domain.job import Job
from costopt.domain.policy import Limits
from costopt.domain.view import Target
from costopt.engine.cohort import JobTerms
from costopt.engine.engine import Engine
from costopt.engine.settings import World
from costopt.ledger.summary import JobState
from tests.support.engine_fixtures import (
    HOUR_S,
    SAFE,
    SPOT_A,
    Follow,
    Scene,
    always,
    rules,
    task,
)
from tests.support.errors import has_code


def _scene(
    jobs: Sequence[Job] = (), account: Account | None = None, patience_s: float | None = None
) -> Scene:
    scene = Scene(
        always(SPOT_A, 20, 1.0),
        always(SAFE, 20, 3.0),
        jobs=jobs,
        strategy=Follow(Target(SPOT_A, 1)),
    )
    scene.settings = replace(
        scene.settings, account=account or Account(), patience_s=patience_s
    )  # fmt: skip
    scene.restart()
    return scene


def _terms(wanted: Target, limits: Limits | None = None, priority: int = 0) -> JobTerms:
    return JobTerms(rules("greedy_spot", limits=limits), Follow(wanted), priority)


def _add(
    engine: Engine, name: str, terms: JobTerms, tenant: str = "default", nodes: int = 1
) -> None:
    job = task(name=name, nodes=(nodes, nodes), work_s=1000 * HOUR_S, deadline_s=1440 * HOUR_S)
    engine.add(replace(job, tenant=tenant), terms)


def test_jobs_follow_their_own_policies() -> None:
    scene = _scene()
    _add(scene.engine, "cheap", _terms(Target(SPOT_A, 1)))
    _add(scene.engine, "safe", _terms(Target(SAFE, 1)))
    scene.go(300)
    assert scene.pools("cheap") == [SPOT_A]
    assert scene.pools("safe") == [SAFE]


def test_the_limits_of_a_policy_bind_its_own_jobs_only() -> None:
    scene = _scene()
    tight = _terms(Target(SPOT_A, 1), Limits(max_nodes=1))
    _add(scene.engine, "one", tight)
    _add(scene.engine, "two", tight)
    _add(scene.engine, "free", _terms(Target(SPOT_A, 1)))
    scene.go(300)
    assert [len(scene.living(name)) for name in ("one", "two", "free")] == [1, 0, 1]
    (tripped,) = scene.events(GuardTripped, "two")
    assert tripped.guard == "max_nodes"


def test_a_job_that_comes_later_does_not_disturb_those_that_run() -> None:
    scene = _scene([task(name="first")])
    scene.go(300)
    _add(scene.engine, "second", _terms(Target(SAFE, 1)))
    scene.go(300)
    assert len(scene.events(LaunchIntended, "first")) == 1
    assert len(scene.living("second")) == 1


def test_a_job_that_is_removed_is_not_touched_any_more() -> None:
    scene = _scene([task(name="first"), task(name="second")])
    scene.go(300)
    with pytest.raises(LedgerError, check=has_code("has_nodes")):
        scene.engine.remove("first")
    scene.engine.stop("enough", "first")
    scene.go(600)
    assert scene.living("first") == []
    assert len(scene.living("second")) == 1
    scene.engine.remove("first")
    before = len(list(scene.ledger.events("first")))
    scene.go(300)
    assert len(list(scene.ledger.events("first"))) == before


def test_of_a_job_that_is_removed_an_engine_keeps_what_it_cost_and_no_more() -> None:
    """What it launched counts for an hour."""
    scene = _scene([task(name="first"), task(name="second")])
    scene.go(300)
    nodes = {node.node_id for node in scene.living("first")}
    scene.engine.stop("enough", "first")
    scene.go(HOUR_S)
    assert scene.engine.spending.usd(scene.clock.now()) > 0
    scene.engine.remove("first")
    scene.go(120)
    assert list(_mentions(scene.engine, {"first", *nodes}, set())) == ["spending._closed"]


def _mentions(thing: object, names: set[str], seen: set[int], path: str = "") -> Iterator[str]:
    """Where the engine's own objects hold one of the names as a key or a member."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, dict | set | list | tuple):
        if any(isinstance(key, str) and key in names for key in thing):
            yield path
        for member in thing.values() if isinstance(thing, dict) else thing:
            yield from _mentions(member, names, seen, path)
    elif type(thing).__module__.startswith("costopt.engine.") and not isinstance(thing, World):
        for name, part in getattr(thing, "__dict__", {}).items():
            yield from _mentions(part, names, seen, f"{path}.{name}".lstrip("."))


def test_a_job_that_stopped_goes_on_from_its_checkpoint() -> None:
    scene = _scene([task(name="first")])
    scene.go(HOUR_S)
    scene.engine.stop("paused", "first")
    scene.go(600)
    assert scene.summary("first").state is JobState.STOPPED
    saved = scene.summary("first").saved_units
    scene.engine.stops.end("first")
    scene.go(HOUR_S)
    assert scene.summary("first").state is JobState.TRAINING
    assert scene.summary("first").done_units > saved > 0
    assert scene.events(WorkLost, "first") == []


def test_what_a_person_stopped_no_guard_lets_go_on() -> None:
    scene = _scene([task(name="first", work_s=100 * HOUR_S, deadline_s=1000 * HOUR_S)])
    scene.engine.set_account(Account(guards=AccountGuards(max_usd_per_month=2.0)))
    scene.go(3 * HOUR_S)
    assert scene.engine.stops.is_by_guard("first")
    scene.engine.stop("paused", "first")
    scene.engine.set_account(Account())
    scene.go(HOUR_S)
    assert scene.living("first") == []


def test_a_job_goes_on_when_the_guard_that_stopped_it_lets_it() -> None:
    scene = _scene([task(name="first", work_s=100 * HOUR_S, deadline_s=1000 * HOUR_S)])
    scene.engine.set_account(Account(guards=AccountGuards(max_usd_per_month=2.0)))
    scene.go(3 * HOUR_S)
    assert scene.living("first") == []
    assert [e.guard for e in scene.events(GuardTripped, "first")] == ["account_max_usd_per_month"]
    assert scene.events(WorkLost, "first") == []
    scene.engine.set_account(Account(guards=AccountGuards(max_usd_per_month=50.0)))
    scene.go(HOUR_S)
    assert len(scene.living("first")) == 1


SPENT: list[tuple[AccountGuards, Tenant, Limits, str]] = [
    (AccountGuards(max_usd=3.0), Tenant("vision"), Limits(), "account_max_usd"),
    (AccountGuards(max_usd_per_month=3.0), Tenant("vision"), Limits(), "account_max_usd_per_month"),
    (AccountGuards(), Tenant("vision", max_usd=3.0), Limits(), "tenant_max_usd"),
    (
        AccountGuards(),
        Tenant("vision", max_usd_per_month=3.0),
        Limits(),
        "tenant_max_usd_per_month",
    ),
    (AccountGuards(), Tenant("vision"), Limits(max_usd_per_month=3.0), "max_usd_per_month"),
]
"""Every guard of dollars that several jobs spend together, each with one that they reach."""


def test_every_guard_of_dollars_that_jobs_spend_together_is_tried() -> None:
    """``Limits.max_usd`` is one job's, and dollars per hour are those of nodes that run."""
    tried = {guard for *_, guard in SPENT}
    prefixes = {AccountGuards: "account_", Tenant: "tenant_", Limits: ""}
    guards = {
        f"{prefix}{field.name}"
        for kind, prefix in prefixes.items()
        for field in fields(kind)
        if field.name.startswith("max_usd") and field.name != "max_usd_per_hour"
    }
    assert tried == guards - {"max_usd"}


@pytest.mark.parametrize(("guards", "tenant", "limits", "guard"), SPENT)
def test_dollars_stop_jobs_also_where_others_that_are_gone_spent_them(
    guards: AccountGuards, tenant: Tenant, limits: Limits, guard: str
) -> None:
    account = Account(tenants={"vision": tenant}, guards=guards)
    scene = _scene(account=account)
    terms = _terms(Target(SPOT_A, 1), limits)
    _add(scene.engine, "gone", terms, "vision")
    scene.go(2 * HOUR_S)
    scene.engine.stop("cancelled", "gone")
    scene.go(HOUR_S)
    scene.engine.remove("gone")
    assert 2.0 <= scene.engine.spending.usd(scene.clock.now(), "vision") < 3.0
    _add(scene.engine, "next", terms, "vision")
    scene.go(2 * HOUR_S)
    assert [e.guard for e in scene.events(GuardTripped, "next")] == [guard]
    assert len(scene.events(RunStopped, "next")) >= 1
    assert scene.living("next") == []


@pytest.mark.parametrize(
    ("tenant", "policy"), [("audio", "test"), ("vision", "another")], ids=["tenant", "policy"]
)
def test_a_policys_month_counts_no_other_tenants_or_policys_jobs(tenant: str, policy: str) -> None:
    scene = _scene()
    limited = rules("greedy_spot", limits=Limits(max_usd_per_month=3.0))
    former = JobTerms(replace(limited, name=policy), Follow(Target(SPOT_A, 1)))
    _add(scene.engine, "gone", former, tenant)
    scene.go(2 * HOUR_S)
    scene.engine.stop("cancelled", "gone")
    scene.go(HOUR_S)
    scene.engine.remove("gone")
    _add(scene.engine, "next", JobTerms(limited, Follow(Target(SPOT_A, 1))), "vision")
    scene.go(2 * HOUR_S)
    assert scene.events(GuardTripped, "next") == []
    assert len(scene.living("next")) == 1


@pytest.mark.parametrize(
    ("account", "limits", "guard"),
    [
        (AccountGuards(max_launches_per_hour=1), Limits(), "account_max_launches_per_hour"),
        (AccountGuards(), Limits(max_launches_per_hour=1), "max_launches_per_hour"),
    ],
    ids=["account", "policy"],
)
def test_launches_of_jobs_that_are_gone_count_for_their_hour(
    account: AccountGuards, limits: Limits, guard: str
) -> None:
    scene = _scene(account=Account(guards=account))
    terms = _terms(Target(SPOT_A, 1), limits)
    _add(scene.engine, "gone", terms)
    scene.go(600)
    scene.engine.stop("cancelled", "gone")
    scene.go(600)
    scene.engine.remove("gone")
    _add(scene.engine, "next", terms)
    scene.go(600)
    assert [e.guard for e in scene.events(GuardTripped, "next")] == [guard]
    assert scene.living("next") == []
    scene.go(HOUR_S)
    assert len(scene.living("next")) == 1


def test_the_account_allows_so_many_launches_an_hour() -> None:
    account = Account(guards=AccountGuards(max_launches_per_hour=3))
    scene = _scene(account=account)
    for name in ("one", "two"):
        _add(scene.engine, name, _terms(Target(SPOT_A, 2)), nodes=2)
    scene.go(HOUR_S)
    assert [len(scene.living(name)) for name in ("one", "two")] == [2, 0]
    (tripped,) = scene.events(GuardTripped, "two")
    assert tripped.guard == "account_max_launches_per_hour"
    scene.go(300)
    assert len(scene.living("two")) == 2


def test_a_higher_priority_drains_a_lower_one_for_its_room() -> None:
    account = Account(guards=AccountGuards(max_nodes=4))
    scene = _scene(account=account, patience_s=10 * HOUR_S)
    _add(scene.engine, "low", _terms(Target(SPOT_A, 3)), nodes=3)
    scene.go(HOUR_S)
    assert len(scene.living("low")) == 3
    _add(scene.engine, "high", _terms(Target(SPOT_A, 2), priority=5), nodes=2)
    scene.go(HOUR_S)
    assert [len(scene.living(name)) for name in ("low", "high")] == [0, 2]
    assert scene.events(WorkLost, "low") == []
    held = scene.events(DecisionMade, "low")[-1]
    assert held.rule == "share"
    assert "waits for capacity" in held.reason
    scene.engine.reprioritize("low", 9)
    scene.go(HOUR_S)
    assert [len(scene.living(name)) for name in ("low", "high")] == [3, 0]


def test_no_tenant_waits_for_ever_for_a_gang_that_does_not_fit_beside_others() -> None:
    account = Account(guards=AccountGuards(max_nodes=4))
    scene = _scene(account=account, patience_s=HOUR_S)
    for name in ("a1", "a2"):
        _add(scene.engine, name, _terms(Target(SPOT_A, 2)), "a", nodes=2)
    scene.go(600)
    _add(scene.engine, "b", _terms(Target(SPOT_A, 4)), "b", nodes=4)
    scene.go(HOUR_S / 2)
    assert scene.living("b") == []
    scene.go(HOUR_S)
    assert len(scene.living("b")) == 4
    scene.go(HOUR_S)
    assert len(scene.living("a1")) == 2


def test_a_new_engine_takes_all_jobs_over() -> None:
    scene = _scene()
    terms = _terms(Target(SPOT_A, 1))
    for name in ("one", "two"):
        _add(scene.engine, name, terms)
    scene.go(600)
    scene.restart()
    for name in ("one", "two"):
        _add(scene.engine, name, terms)
    scene.go(600)
    assert [len(scene.events(LaunchIntended, name)) for name in ("one", "two")] == [1, 1]
    assert [len(scene.living(name)) for name in ("one", "two")] == [1, 1]


def test_a_tick_that_launches_too_long_leaves_the_rest_to_the_next() -> None:
    scene = _scene()
    scene.settings = replace(scene.settings, launch_s=0.0)
    scene.restart()
    for name in ("one", "two", "three"):
        _add(scene.engine, name, _terms(Target(SPOT_A, 1)))
    for count in (1, 2, 3):
        scene.tick()
        assert len(scene.cloud.requests) == count
