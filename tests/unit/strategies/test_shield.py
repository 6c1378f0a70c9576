"""The rule that overrules a strategy where the deadline would be endangered."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from costopt.domain.account import Account, Quota
from costopt.domain.job import Phase
from costopt.domain.market import CapacityType, Pool
from costopt.domain.ports import Strategy
from costopt.domain.power import PowerCap
from costopt.domain.scaling import FAST_LINKS
from costopt.domain.throughput import Throughput, ThroughputSample
from costopt.domain.view import Target, View
from costopt.strategies.adaptive.strategy import AdaptiveStrategy
from costopt.strategies.gang_options import GangOption, gang_options
from costopt.strategies.remaining_time import (
    is_running,
    remaining_startup_s,
    seconds_left,
    seconds_to_finish,
)
from costopt.strategies.shield import SHIELD, ShieldedStrategy, may_pause
from costopt.strategies.shield import slack_s as slack_of
from tests.support.engine_fixtures import (
    BIG_SAFE,
    HOUR_S,
    SAFE,
    SPOT_A,
    SPOT_B,
    Follow,
    Scene,
    always,
    changing,
    rules,
    task,
)
from tests.support.strategy_fixtures import TICK_S, Wants, build_view, nodes_in, offer, only

SPOT_OFFER, SAFE_OFFER, BIG_OFFER = offer(SPOT_A, 2.0), offer(SAFE, 8.0), offer(BIG_SAFE, 36.0)


NEEDED_S = 150 + 4 * HOUR_S * (1 + 10 / 1800) + 10
"""Start, 4 h of work with their saves, and the last save."""


BIG_SPEED = 4 * (FAST_LINKS.low / FAST_LINKS.value) ** 2
BIG_NEEDED_S = 150 + 4 * HOUR_S / BIG_SPEED * (1 + 10 / 1800) + 10
"""The same on four GPUs, two doublings."""


def _decide(view: View, *targets: Target) -> tuple[tuple[Target, ...], str | None]:
    decision = only(ShieldedStrategy(Wants(*targets)).decide(view))
    return decision.targets, decision.rule


@pytest.mark.parametrize("wanted", [(), (Target(SPOT_A, 1),)], ids=["wait", "spot"])
@pytest.mark.parametrize(("spare_s", "stands"), [(TICK_S + 1, True), (TICK_S - 1, False)])
def test_spot_and_waiting_stand_while_a_tick_can_be_lost(
    wanted: tuple[Target, ...], spare_s: float, stands: bool
) -> None:
    view = build_view(task(deadline_s=NEEDED_S + spare_s), [SPOT_OFFER, SAFE_OFFER])
    expected = (wanted, None) if stands else ((Target(SAFE, 1),), "shield")
    assert _decide(view, *wanted) == expected


def test_the_reserve_is_held_back() -> None:
    view = build_view(
        task(deadline_s=NEEDED_S + TICK_S + 500), [SPOT_OFFER, SAFE_OFFER], reserve_s=600
    )
    assert _decide(view)[1] == "shield"


def test_the_slack_is_reported_with_every_decision() -> None:
    view = build_view(task(deadline_s=NEEDED_S + 5000), [SPOT_OFFER, SAFE_OFFER])
    decision = only(ShieldedStrategy(Wants()).decide(view))
    assert decision.slack_s == pytest.approx(5000)
    assert slack_of(view, view.jobs[0]) == pytest.approx(5000)


def test_without_safe_capacity_there_is_no_slack_and_nothing_to_overrule_with() -> None:
    view = build_view(task(deadline_s=60), [SPOT_OFFER])
    assert _decide(view, Target(SPOT_A, 1)) == ((Target(SPOT_A, 1),), None)
    assert slack_of(view, view.jobs[0]) is None


@pytest.mark.parametrize(
    ("deadline_s", "chosen"),
    [(NEEDED_S + 100, SAFE), (BIG_NEEDED_S + 100, BIG_SAFE), (600.0, BIG_SAFE)],
    ids=["cheapest in time", "faster", "least late"],
)
def test_the_cheapest_safe_pool_that_is_in_time(deadline_s: float, chosen: object) -> None:
    view = build_view(task(deadline_s=deadline_s), [SPOT_OFFER, SAFE_OFFER, BIG_OFFER])
    assert _decide(view) == ((Target(chosen, 1),), "shield")  # type: ignore[arg-type]


def test_an_uninterruptible_pool_without_room_is_not_an_option() -> None:
    view = build_view(task(deadline_s=NEEDED_S + 100), [offer(SAFE, 8.0, 0), BIG_OFFER])
    assert _decide(view) == ((), None)
    tight = build_view(task(deadline_s=HOUR_S), [offer(SAFE, 8.0, 0), BIG_OFFER])
    assert _decide(tight)[0] == (Target(BIG_SAFE, 1),)


def test_a_safe_gang_that_is_too_slow_gives_way_to_a_faster_one() -> None:
    view = build_view(task(deadline_s=NEEDED_S - 100), [SAFE_OFFER, BIG_OFFER])
    assert _decide(view, Target(SAFE, 1)) == ((Target(BIG_SAFE, 1),), "shield")
    enough = build_view(task(deadline_s=NEEDED_S + 1), [SAFE_OFFER, BIG_OFFER])
    assert _decide(enough, Target(SAFE, 1)) == ((Target(SAFE, 1),), None)


@pytest.mark.parametrize("inner", [Wants(Target(SPOT_A, 2)), AdaptiveStrategy()])
@pytest.mark.parametrize(("room", "stands"), [(2, True), (1, False)])
def test_a_gang_on_spot_is_not_left_because_a_smaller_safe_one_comes_to_be_in_time(
    inner: Strategy, room: int, stands: bool
) -> None:
    job = task(deadline_s=NEEDED_S + 10, nodes=(1, 2))
    view = build_view(job, [SPOT_OFFER, offer(SAFE, 8.0, room)], nodes=nodes_in(SPOT_A, 2))
    decision = only(ShieldedStrategy(inner).decide(view))
    assert decision.targets == (Target(SPOT_A, 2) if stands else Target(SAFE, 1),)


def test_the_reserve_is_there_to_be_used_once_launches_were_refused() -> None:
    """Not held back any more: what runs and ends in its time is kept, what is too slow is not."""
    offers = [SPOT_OFFER, SAFE_OFFER, BIG_OFFER]
    runs_slowly = build_view(
        task(deadline_s=BIG_NEEDED_S + 100), offers, nodes=nodes_in(SAFE), reserve_s=600
    )
    assert _decide(runs_slowly, Target(SAFE, 1)) == ((Target(BIG_SAFE, 1),), "shield")
    for deadline_s, kept in ((NEEDED_S - 149, SAFE), (NEEDED_S - 151, BIG_SAFE)):
        late_by_start = build_view(
            task(deadline_s=deadline_s),
            offers,
            nodes=nodes_in(SAFE),
            reserve_s=NEEDED_S - BIG_NEEDED_S,
        )
        assert _decide(late_by_start, Target(SAFE, 1))[0] == (Target(kept, 1),)


def test_the_save_of_the_gang_before_is_allowed_for_where_nodes_start_up_earlier() -> None:
    job = task(deadline_s=NEEDED_S + 1000, save_s=10)
    quick = replace(job, startup_s=0, checkpoint=replace(job.checkpoint, restore_s=150))
    views = [build_view(quick, [SAFE_OFFER], nodes=nodes) for nodes in ((), nodes_in(SPOT_A))]
    slacks_s = [slack_of(view, view.jobs[0]) for view in views]
    assert slacks_s == [pytest.approx(1000), pytest.approx(990)]


def test_a_safe_gang_spread_over_zones_is_as_safe_as_one_in_a_zone() -> None:
    other = replace(SAFE, zone="another")
    offers = [SPOT_OFFER, SAFE_OFFER, offer(other, 8.0)]
    unhurried = build_view(task(deadline_s=40 * HOUR_S, nodes=(2, 2)), offers)
    slack_s = slack_of(unhurried, unhurried.jobs[0])
    assert slack_s is not None
    due_s = 40 * HOUR_S - slack_s + TICK_S / 2
    view = build_view(task(deadline_s=due_s, nodes=(2, 2)), offers)
    spread = (Target(SAFE, 1), Target(other, 1))
    assert _decide(view, *spread) == (spread, None)
    assert _decide(view, Target(SPOT_A, 1), Target(other, 1))[1] == "shield"


def test_a_safe_gang_that_runs_needs_no_new_start() -> None:
    view = build_view(
        task(deadline_s=NEEDED_S - 100), [SAFE_OFFER, BIG_OFFER], nodes=nodes_in(SAFE)
    )
    assert _decide(view, Target(SAFE, 1)) == ((Target(SAFE, 1),), None)
    starting = build_view(
        task(deadline_s=NEEDED_S - 100),
        [SAFE_OFFER, BIG_OFFER],
        nodes=nodes_in(SAFE),
        starts_in_s=140,
    )
    assert _decide(starting, Target(SAFE, 1)) == ((Target(BIG_SAFE, 1),), "shield")


def test_work_that_is_not_saved_does_not_count_before_it_is_safe() -> None:
    """Two hours are done on spot and none is saved: a strike would put the slow gang out of time.

    On a gang that nobody takes away they count.
    """
    deadline_s = 2 * HOUR_S + NEEDED_S - HOUR_S
    offers = [SPOT_OFFER, SAFE_OFFER, BIG_OFFER]
    on_spot = build_view(
        task(deadline_s=deadline_s),
        offers,
        now_s=2 * HOUR_S,
        done=2 * HOUR_S,
        saved=0,
        nodes=nodes_in(SPOT_A),
    )
    assert _decide(on_spot, Target(SAFE, 1))[0] == (Target(BIG_SAFE, 1),)
    on_safe = replace(on_spot, jobs=(replace(on_spot.jobs[0], nodes=nodes_in(SAFE)),))
    assert _decide(on_safe, Target(SAFE, 1)) == ((Target(SAFE, 1),), None)


def test_what_survives_the_tick_counts_where_a_save_takes_no_time() -> None:
    """On a grid with free saves spot does a tick's work for certain."""
    job = replace(task(deadline_s=0, save_s=0), startup_s=0)
    job = replace(job, checkpoint=replace(job.checkpoint, restore_s=0))
    needed_s = 4 * HOUR_S
    job = replace(task(deadline_s=needed_s + 10, save_s=0), startup_s=0, checkpoint=job.checkpoint)
    uninterruptible = build_view(
        job, [SPOT_OFFER, SAFE_OFFER], uninterruptible_s=TICK_S, nodes=nodes_in(SPOT_A)
    )
    assert _decide(uninterruptible, Target(SPOT_A, 1)) == ((Target(SPOT_A, 1),), None)
    assert _decide(uninterruptible)[1] == "shield"
    slow_save = replace(job, checkpoint=replace(job.checkpoint, save_s=0.01))
    saving = replace(uninterruptible, jobs=(replace(uninterruptible.jobs[0], job=slow_save),))
    assert _decide(saving, Target(SPOT_A, 1))[1] == "shield"
    loose = replace(uninterruptible, uninterruptible_s=TICK_S - 1)
    assert _decide(loose, Target(SPOT_A, 1))[1] == "shield"


def test_a_phase_that_may_not_pause_goes_on_on_demand() -> None:
    phases = (Phase("a", 0.5, 1, 1), Phase("b", 0.5, 1, 1, may_pause=False))
    job = replace(task(), phases=phases)
    offers = [SPOT_OFFER, SAFE_OFFER]
    for done, paused in [(0.0, True), (1.0, True), (2 * HOUR_S, True), (2 * HOUR_S + 1, False)]:
        view = build_view(job, offers, done=done)
        assert may_pause(view.jobs[0]) is paused
        expected = ((), None) if paused else ((Target(SAFE, 1),), "no_pause")
        assert _decide(view) == expected, done
        assert _decide(view, Target(SPOT_A, 1)) == ((Target(SPOT_A, 1),), None)


def test_a_first_phase_that_may_not_pause_may_be_begun_late() -> None:
    job = replace(task(), phases=(Phase("a", 1.0, 1, 1, may_pause=False),))
    assert may_pause(build_view(job, []).jobs[0])
    assert not may_pause(build_view(job, [], done=1.0).jobs[0])


def _narrowing() -> tuple[tuple[Phase, ...], Throughput]:
    points = tuple(ThroughputSample("V100", n, float(n)) for n in (1, 4))
    return (Phase("wide", 0.5, 4, 4), Phase("narrow", 0.5, 1, 1)), Throughput(points)


@pytest.mark.parametrize("slack_s", [900.0, 1800.0, 7200.0])
def test_a_slow_phase_ahead_is_counted(slack_s: float) -> None:
    """Half the work on 4 nodes, half on one: 0.5 h + 2 h, and not 1 h."""
    phases, throughput = _narrowing()
    job = replace(task(nodes=(1, 4)), phases=phases, throughput=throughput)
    job = replace(job, deadline_at=job.start_at + timedelta(seconds=2.5 * HOUR_S + slack_s))
    scene = Scene(
        changing(SPOT_A, (0, 0, 2.0)),
        always(SAFE, 9, 8.0),
        jobs=[job],
        strategy=ShieldedStrategy(Follow()),
        policy=rules("greedy_spot"),
    )
    scene.finish()
    assert scene.summary().on_time is True


@pytest.mark.parametrize("inner", [Follow(), Follow(Target(SPOT_B, 1))], ids=["wait", "spot"])
def test_two_jobs_are_each_in_time(inner: Follow) -> None:
    jobs = [
        task(2 * HOUR_S, 4 * HOUR_S, name="one"),
        task(2 * HOUR_S, 3 * HOUR_S, name="two"),
    ]
    scene = Scene(
        changing(SPOT_B, (0, 1, 2.0), (1800, 0, 2.0), (3600, 1, 2.0), (3700, 0, 2.0)),
        always(SAFE, 9, 8.0),
        jobs=jobs,
        strategy=ShieldedStrategy(inner),
    )
    scene.finish()
    assert scene.summary("one").on_time is True
    assert scene.summary("two").on_time is True


CAP = PowerCap(250.0, 0.8, 700.0, "test")


CAPPED_S = 150 + 4 * HOUR_S / 0.8 * (1 + 10 / 1800) + 10
"""What the capped gang needs."""


def _build_capped_view(deadline_s: float, *pools: Pool, uninterruptible_s: float = 0.0) -> View:
    job = task(deadline_s=deadline_s, save_s=0.0 if uninterruptible_s else 10.0)
    view = build_view(
        job, [offer(where, 8.0) for where in pools], uninterruptible_s=uninterruptible_s
    )
    return replace(view, powers={p: replace(w, caps=(CAP,)) for p, w in view.powers.items()})


@pytest.mark.parametrize(("spare_s", "cap_w"), [(1, 250.0), (-1, None)])
def test_a_power_cap_that_makes_a_safe_gang_late_is_lifted(
    spare_s: float, cap_w: float | None
) -> None:
    view = _build_capped_view(CAPPED_S + spare_s, SAFE)
    targets, rule = _decide(view, Target(SAFE, 1, 250.0))
    assert targets == (Target(SAFE, 1, cap_w),)
    assert rule == (None if cap_w else "shield")


@pytest.mark.parametrize(("spare_s", "rule"), [(1, None), (-1, "shield")])
def test_a_tick_on_capped_spot_counts_for_what_it_does_under_the_cap(
    spare_s: float, rule: str | None
) -> None:
    """A start of 150 s and 150 s of work at 0.8 within the tick; then a start and all the rest."""
    after_tick_s = 150 + 4 * HOUR_S - 0.8 * (TICK_S - 150)
    view = _build_capped_view(
        TICK_S + after_tick_s + spare_s, SPOT_A, SAFE, uninterruptible_s=TICK_S
    )
    assert _decide(view, Target(SPOT_A, 1, 250.0))[1] == rule


def test_an_unmeasured_cap_slows_nothing() -> None:
    view = _build_capped_view(NEEDED_S + 1, SAFE)
    assert _decide(view, Target(SAFE, 1, 111.0))[1] is None


def _option() -> GangOption:
    view = build_view(task(), [offer(SAFE, 8.0)])
    (option,) = gang_options(view, view.jobs[0])
    return option


def test_start_work_saves_and_the_last_save() -> None:
    job = task(save_s=18.0)
    work_s = 3600 * (1 + 18 / 1800) + 18
    assert seconds_to_finish(_option(), job, 3600) == pytest.approx(150 + work_s)
    assert seconds_to_finish(_option(), job, 3600, 0.0) == pytest.approx(work_s)
    assert seconds_to_finish(_option(), job, 3600, 40.0) == pytest.approx(40 + work_s)
    assert seconds_to_finish(_option(), job, 0, 40.0) == 0.0
    assert seconds_to_finish(_option(), job, 0) == 150, "the command has still to end somewhere"


def test_it_is_no_less_than_what_the_simulator_takes() -> None:
    from tests.support.engine_fixtures import Scene, always, rules

    for save_s in (0.0, 10.0, 120.0):
        job = task(save_s=save_s)
        scene = Scene(always(SAFE, 9, 8.0), jobs=[job], policy=rules("on_demand"))
        scene.finish()
        finished_at = scene.summary().finished_at
        assert finished_at is not None
        took_s = (finished_at - job.start_at).total_seconds()
        bound_s = seconds_to_finish(_option(), job, job.work.amount)
        assert took_s <= bound_s <= took_s + 50 + save_s


def test_a_phase_of_another_size_costs_another_start() -> None:
    phases = (Phase("narrow", 0.5, 1, 1), Phase("wide", 0.5, 2, 2))
    points = (ThroughputSample("V100", 1, 1.0), ThroughputSample("V100", 2, 2.0))
    job = replace(task(nodes=(1, 2), save_s=0), phases=phases, throughput=Throughput(points))
    view = build_view(job, [offer(SAFE, 8.0)])
    (option,) = gang_options(view, view.jobs[0])
    assert seconds_to_finish(option, job, 4 * HOUR_S) == 150 + 2 * HOUR_S + 150 + HOUR_S
    assert seconds_to_finish(option, job, 2 * HOUR_S) == 150 + HOUR_S


def test_seconds_left_hold_the_reserve_back() -> None:
    view = build_view(task(deadline_s=HOUR_S), [], now_s=600, reserve_s=100)
    assert seconds_left(view, view.jobs[0]) == 3600 - 600 - 100


def test_a_gang_runs_only_if_it_is_exactly_there() -> None:
    view = build_view(task(nodes=(1, 4)), [], nodes=nodes_in(SPOT_A, 2))
    (job_view,) = view.jobs
    assert is_running(job_view, [Target(SPOT_A, 2)])
    assert not is_running(job_view, [Target(SPOT_A, 1)])
    assert not is_running(job_view, [Target(SPOT_A, 2), Target(SAFE, 1)])
    assert not is_running(job_view, [])
    assert not is_running(replace(job_view, nodes=()), [])


@pytest.mark.parametrize(("starts_in_s", "left_s"), [(None, 0.0), (30.0, 30.0), (-30.0, 0.0)])
def test_the_rest_of_the_start(starts_in_s: float | None, left_s: float) -> None:
    view = build_view(task(), [], starts_in_s=starts_in_s)
    assert remaining_startup_s(view, view.jobs[0]) == left_s


OFFERS = [offer(SPOT_A, 2.0), offer(SAFE, 8.0)]


TURN_NEEDED_S = 150 + 4 * HOUR_S * (1 + 10 / 1800) + 10 + TICK_S
"""Start, 4 h of work with their saves, the last save, and a tick until the next one starts."""


ANY = Quota("all", max_nodes=1)


def _three(deadline_s: float, *quotas: Quota, tenants: tuple[str, ...] = ("t", "t", "t")) -> View:
    jobs = [
        build_view(
            replace(task(deadline_s=deadline_s, name=f"job-{n}"), tenant=tenant), OFFERS
        ).jobs[0]
        for n, tenant in enumerate(tenants)
    ]
    view = build_view(task(), OFFERS)
    return replace(view, jobs=tuple(jobs), account=Account(quotas))


def _shielded(view: View) -> int:
    decisions = ShieldedStrategy(Wants()).decide(view).decisions
    return sum(decision.rule == SHIELD for decision in decisions)


@pytest.mark.parametrize(("spare_s", "count"), [(1, 0), (-1, 1)])
def test_the_first_of_three_starts_while_the_others_still_can(spare_s: float, count: int) -> None:
    assert _shielded(_three(3 * TURN_NEEDED_S + spare_s, ANY)) == count


@pytest.mark.parametrize(
    "quota",
    [
        Quota("none", max_nodes=3),
        Quota("spot", capacity_type=CapacityType.SPOT, max_nodes=1),
        Quota("elsewhere", region="eu-west-1", max_nodes=1),
        Quota("of others", tenant="other", max_nodes=1),
    ],
    ids=lambda quota: quota.name,
)
def test_a_quota_with_room_for_all_changes_no_deadline(quota: Quota) -> None:
    assert _shielded(_three(2 * TURN_NEEDED_S, quota)) == 0


def test_what_cannot_all_be_in_time_starts_at_once() -> None:
    assert _shielded(_three(2 * TURN_NEEDED_S, ANY)) >= 1


def test_a_tenants_quota_binds_its_own_jobs_alone() -> None:
    quota = Quota("of t", tenant="t", max_nodes=1)
    view = _three(2 * TURN_NEEDED_S - 1, quota, tenants=("t", "t", "other"))
    decisions = ShieldedStrategy(Wants()).decide(view).decisions
    assert [d.rule for d in decisions[:2]].count(SHIELD) == 1
    assert decisions[2].rule is None
