"""Guards stop launches, not checkpoints, and say so once."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from costopt.domain.events import (
    CheckpointCommitted,
    GuardTripped,
    LaunchIntended,
    NodeEnded,
    NodeLaunched,
    RunStopped,
)
from costopt.domain.fleet import EndCause
from costopt.domain.job import Budget
from costopt.domain.policy import Limits, Rule, RuleSignal
from costopt.domain.view import Target
from costopt.engine.billing import SpendTracker
from costopt.ledger.summary import JobState
from tests.support.engine_fixtures import (
    BIG_SAFE,
    HOUR_S,
    SAFE,
    SPOT_A,
    SPOT_B,
    Follow,
    Scene,
    always,
    rules,
    task,
)


def _scene(limits: Limits | None = None, **job_fields: object) -> Scene:
    return Scene(
        always(SPOT_A, 4, 2.0),
        always(SAFE, 9, 8.0),
        jobs=[replace(task(), **job_fields)],  # type: ignore[arg-type]
        policy=rules("greedy_spot", limits=limits),
    )


@pytest.mark.parametrize(
    ("scene", "guard"),
    [
        (_scene(Limits(max_usd=4.0)), "max_usd"),
        (_scene(budget=Budget(max_usd=4.0)), "max_usd"),
        (_scene(budget=Budget(max_kwh=1.9)), "max_kwh"),
        (_scene(Limits(max_usd_per_month=4.0)), "max_usd_per_month"),
        (_scene(budget=Budget(max_usd_per_month=4.0)), "job_max_usd_per_month"),
    ],
    ids=["policy's dollars", "job's dollars", "job's energy", "month", "job's month"],
)
def test_a_spent_budget_saves_and_stops_the_job(scene: Scene, guard: str) -> None:
    scene.finish()
    assert [e.guard for e in scene.events(GuardTripped)] == [guard]
    assert len(scene.events(RunStopped)) == 1
    summary = scene.summary()
    assert summary.state is JobState.STOPPED
    assert not scene.living()
    assert summary.lost_units == 0
    assert 0.45 < summary.saved_units / (4 * HOUR_S) < 0.55
    newest = scene.events(CheckpointCommitted)[-1]
    (ended,) = scene.events(NodeEnded)
    assert ended.cause is EndCause.RELEASED
    assert newest.units == summary.done_units
    assert newest.at <= ended.ended_at


def test_a_run_that_goes_on_over_budget_launches_nothing() -> None:
    scene = _scene(Limits(max_usd=4.0))
    scene.finish()
    scene.restart()
    scene.finish(3)
    assert len(scene.events(NodeLaunched)) == 1
    assert len(scene.events(GuardTripped)) == 1
    assert scene.summary().state is JobState.STOPPED


def test_a_budget_that_a_rule_sets_counts_while_the_rule_holds() -> None:
    busy = Rule("shared", RuleSignal.QUEUE_LENGTH, 1, 9, Limits(max_usd=1.0))
    scene = Scene(always(SPOT_A, 4, 2.0), jobs=[task()], policy=rules("greedy_spot", busy))
    scene.finish()
    assert [e.guard for e in scene.events(GuardTripped)] == ["max_usd"]


@pytest.mark.slow
def test_the_month_counts_from_its_first_day() -> None:
    """The run begins on 15 February: 12 $ until then are March's no more."""
    scene = _scene(Limits(max_usd_per_month=2.0 * 24 * 14 - 1))
    scene.jobs = [task(20 * 24 * HOUR_S, 50 * 24 * HOUR_S)]
    scene.settings = replace(scene.settings, tick_s=HOUR_S)
    scene.restart()
    scene.go(13 * 24 * HOUR_S)
    assert not scene.events(GuardTripped)
    scene.finish()
    assert scene.summary().state is JobState.FINISHED


def test_what_jobs_of_a_policy_cost_this_month_is_added_up_once_a_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = _scene(Limits(max_usd_per_month=100.0))
    scene.jobs = [task(name=name) for name in ("one", "two", "three")]
    scene.restart()
    looked: list[str] = []
    cost = SpendTracker._month_micros

    def counted(spending: SpendTracker, job: str, now: datetime) -> int:
        looked.append(job)
        return cost(spending, job, now)

    monkeypatch.setattr(SpendTracker, "_month_micros", counted)
    scene.tick()
    assert sorted(looked) == ["one", "three", "two"]


@pytest.mark.parametrize(
    ("limits", "guard", "launched"),
    [
        (Limits(max_nodes=1), "max_nodes", 1),
        (Limits(max_usd_per_hour=3.0), "max_usd_per_hour", 1),
        (Limits(max_launches_per_hour=1), "max_launches_per_hour", 1),
        (Limits(max_nodes=0), "max_nodes", 0),
        (Limits(max_kw=1.5), "max_kw", 1),
        (Limits(max_kw=0.9), "max_kw", 0),
    ],
)
def test_a_launch_beyond_a_limit_does_not_happen(limits: Limits, guard: str, launched: int) -> None:
    jobs = [task(name="one"), task(name="two")]
    scene = Scene(always(SPOT_A, 4, 2.0), jobs=jobs, policy=rules("greedy_spot", limits=limits))
    scene.go(20 * 60)
    assert len(scene.events(NodeLaunched, "one")) == launched
    assert not scene.events(NodeLaunched, "two")
    assert not scene.events(LaunchIntended, "two")
    assert [e.guard for e in scene.events(GuardTripped, "two")] == [guard]


def test_a_job_respects_its_own_dollars_per_hour_beside_others() -> None:
    held = replace(task(name="held", nodes=(1, 4)), budget=Budget(max_usd_per_hour=5.0))
    free = task(name="free", nodes=(1, 4))
    want = Follow(Target(SPOT_A, 3))
    scene = Scene(always(SPOT_A, 9, 2.0), jobs=[held, free], strategy=want)
    scene.go(300)
    assert len(scene.living("free")) == 3
    assert not scene.living("held")
    (tripped,) = scene.events(GuardTripped, "held")
    assert tripped.guard == "job_max_usd_per_hour"
    assert "$6.00/h, more than its $5.00" in tripped.message
    want.targets = (Target(SPOT_A, 2),)
    scene.go(300)
    assert len(scene.living("held")) == 2


@pytest.mark.parametrize("strategy", ["greedy_spot", "adaptive", "milp", "on_demand"])
def test_a_strategy_chooses_a_gang_within_the_jobs_dollars_per_hour(strategy: str) -> None:
    job = replace(task(deadline_s=6 * HOUR_S), budget=Budget(max_usd_per_hour=17.0))
    cheap_for_its_size = always(BIG_SAFE, 9, 20.0)
    scene = Scene(cheap_for_its_size, always(SAFE, 9, 8.0), jobs=[job], policy=rules(strategy))
    scene.finish()
    assert scene.summary().state is JobState.FINISHED
    assert {e.pool for e in scene.events(NodeLaunched)} == {str(SAFE)}
    assert not scene.events(GuardTripped)


def test_the_launch_rate_is_allowed_again_after_an_hour() -> None:
    jobs = [task(name="one"), task(name="two")]
    scene = Scene(
        always(SPOT_A, 4, 2.0),
        jobs=jobs,
        policy=rules("greedy_spot", limits=Limits(max_launches_per_hour=1)),
    )
    scene.go(HOUR_S)
    assert not scene.living("two")
    scene.go(120)
    assert len(scene.living("two")) == 1


def test_a_guard_that_trips_again_is_reported_again() -> None:
    want = Follow(Target(SPOT_A, 2))
    scene = Scene(
        always(SPOT_A, 4, 2.0),
        jobs=[task(nodes=(1, 4))],
        strategy=want,
        policy=rules("greedy_spot", limits=Limits(max_nodes=1)),
    )
    scene.go(180)
    want.targets = (Target(SPOT_A, 1),)
    scene.go(180)
    want.targets = (Target(SPOT_A, 2),)
    scene.go(180)
    assert len(scene.events(GuardTripped)) == 2


@pytest.mark.parametrize(
    "limits",
    [Limits(max_nodes=3), Limits(max_usd_per_hour=9.0), Limits(max_launches_per_hour=3)],
    ids=["nodes", "$/h", "rate"],
)
def test_of_a_gang_over_two_pools_a_guard_allows_all_or_nothing(limits: Limits) -> None:
    scene = Scene(
        always(SPOT_A, 4, 2.0),
        always(SPOT_B, 4, 3.0),
        jobs=[task(nodes=(4, 4))],
        strategy=Follow(Target(SPOT_A, 2), Target(SPOT_B, 2)),
        policy=rules("greedy_spot", limits=limits),
    )
    scene.go(300)
    assert scene.events(LaunchIntended) == []
    assert len(scene.events(GuardTripped)) == 1


def test_a_full_fleet_can_still_move() -> None:
    want = Follow(Target(SPOT_A, 1))
    scene = Scene(
        always(SPOT_A, 4, 2.0),
        always(SAFE, 4, 8.0),
        jobs=[task()],
        strategy=want,
        policy=rules("greedy_spot", limits=Limits(max_nodes=1)),
    )
    scene.go(300)
    want.targets = (Target(SAFE, 1),)
    scene.go(300)
    assert scene.pools() == [SAFE]


@pytest.mark.parametrize(
    "limits", [Limits(max_usd_per_hour=5.0), Limits(max_launches_per_hour=1)], ids=["$/h", "rate"]
)
def test_what_runs_is_kept_where_a_guard_forbids_what_should_replace_it(limits: Limits) -> None:
    want = Follow(Target(SPOT_A, 1))
    scene = Scene(
        always(SPOT_A, 4, 2.0),
        always(SAFE, 4, 8.0),
        jobs=[task()],
        strategy=want,
        policy=rules("greedy_spot", limits=limits),
    )
    scene.go(300)
    want.targets = (Target(SAFE, 1),)
    scene.go(300)
    assert scene.pools() == [SPOT_A]
    assert len(scene.events(GuardTripped)) == 1


def test_nodes_that_are_too_expensive_are_released_and_the_pool_left_alone() -> None:
    scene = Scene(
        always(SPOT_A, 4, 2.0),
        always(SAFE, 4, 8.0),
        jobs=[task()],
        policy=rules("greedy_spot", limits=Limits(max_price_ratio=1.5)),
        cooldown_s=600,
    )
    scene.cloud.surcharge = 1.6
    scene.go(600)
    (tripped,) = scene.events(GuardTripped)
    assert tripped.guard == "max_price_ratio"
    assert tripped.pool == str(SPOT_A)
    assert "$2.0000/h" in tripped.message
    assert "$3.2000/h" in tripped.message
    assert scene.pools() == []
    assert len(scene.events(NodeLaunched)) == 1
    scene.cloud.surcharge = 1.4
    scene.go(300)
    assert scene.pools() == [SPOT_A]


def test_an_expensive_pool_gives_way_to_another_in_the_same_tick() -> None:
    scene = Scene(always(SPOT_A, 4, 2.0), always(SPOT_B, 4, 5.0), jobs=[task()])
    scene.cloud.surcharge = 1.6
    scene.policy = rules("greedy_spot", limits=Limits(max_price_ratio=1.5))
    scene.restart()
    scene.tick()
    assert [r.pool for r in scene.cloud.requests] == [SPOT_A, SPOT_B]


def test_a_launch_answered_late_is_held_to_its_price_too() -> None:
    scene = Scene(always(SPOT_A, 4, 2.0), jobs=[task()])
    scene.cloud.silent = {"launch"}
    scene.tick()
    scene.cloud.silent = set()
    scene.cloud.surcharge = 2.0
    scene.tick()
    assert [e.guard for e in scene.events(GuardTripped)] == ["max_price_ratio"]
    assert not scene.living()
