"""Spot, wait or fall back, by what each is expected to cost."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from costopt.backtesting.replay import replay
from costopt.controller.forecasts import DEFAULT_HAZARD
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.events import DecisionMade
from costopt.domain.fleet import Node
from costopt.domain.market import Offer, Pool
from costopt.domain.policy import StrategySpec
from costopt.domain.progress import GangState, Progress
from costopt.domain.throughput import Throughput, ThroughputSample
from costopt.domain.view import Decision, Target, View
from costopt.market.hazard import LearnedHazard
from costopt.market.lifetime import LifetimeModel, prior_rates
from costopt.strategies import build
from costopt.strategies.adaptive.candidates import ProgramState, candidate_of
from costopt.strategies.adaptive.problem import build_problem
from costopt.strategies.adaptive.strategy import AdaptiveStrategy
from costopt.strategies.fault_isolation import share_lifetimes
from costopt.strategies.gang_options import gang_options
from costopt.strategies.milp import MilpStrategy
from tests.support.engine_fixtures import (
    HOUR_S,
    SAFE,
    SPOT_A,
    SPOT_B,
    Machines,
    Powers,
    SomeHazard,
    always,
    rules,
    task,
)
from tests.support.market_fixtures import after, market
from tests.support.strategy_fixtures import build_view, nodes_in, offer, only

SAFE_OFFER = offer(SAFE, 8.0)


WAIT: tuple[Target, ...] = ()


ON_A, ON_B, ON_SAFE = (Target(SPOT_A, 1),), (Target(SPOT_B, 1),), (Target(SAFE, 1),)


def _decide(
    offers: list[Offer],
    *,
    deadline_h: float = 16,
    now_h: float = 0,
    done_h: float = 0.0,
    nodes: tuple[Node, ...] = (),
    strategy: AdaptiveStrategy | None = None,
) -> Decision:
    """4 h of work."""
    view = build_view(
        task(deadline_s=deadline_h * HOUR_S),
        [*offers, SAFE_OFFER],
        now_s=now_h * HOUR_S,
        done=done_h * HOUR_S,
        nodes=nodes,
    )
    return only((strategy or AdaptiveStrategy()).decide(view))


def test_available_spot_is_used() -> None:
    decision = _decide([offer(SPOT_A, 2.0)])
    assert decision.targets == ON_A
    assert "launch on" in decision.reason
    assert "wait $" in decision.reason


def test_with_much_time_it_waits_for_spot() -> None:
    assert _decide([offer(SPOT_A, 2.0, 0)], deadline_h=30).targets == WAIT


def test_with_little_time_it_falls_back() -> None:
    assert _decide([offer(SPOT_A, 2.0, 0)], deadline_h=6).targets == ON_SAFE


@pytest.mark.parametrize(("pools", "expected"), [([SPOT_A], ON_SAFE), ([SPOT_A, SPOT_B], WAIT)])
def test_for_little_it_does_not_leave_several_pools(
    pools: list[Pool], expected: tuple[Target, ...]
) -> None:
    """The safe gang seems as cheap as to wait; of two pools one may come back first."""
    assert _decide([offer(pool, 2.0, 0) for pool in pools], deadline_h=6.8).targets == expected


def test_spot_more_expensive_than_the_safe_gang_is_left() -> None:
    assert _decide([offer(SPOT_A, 9.0)], deadline_h=6).targets == ON_SAFE


def test_an_on_demand_gang_is_kept_while_spot_is_young() -> None:
    """Spot that has just come is likely to go; spot that has lasted is worth a launch."""
    chosen = []
    for age_h in (0.0, 9.0):
        strategy = AdaptiveStrategy()
        for minutes in range(0, int(60 * age_h) + 5, 5):
            up = minutes > 0
            strategy.lifetimes.observe(
                ("job", str(SPOT_A), 1), "aws/us-east-1", up, after(0) + timedelta(minutes=minutes)
            )
        view_h = (int(60 * age_h) + 5) / 60
        decision = _decide(
            [offer(SPOT_A, 5.5)],
            deadline_h=view_h + 5.0,
            now_h=view_h,
            nodes=nodes_in(SAFE),
            strategy=strategy,
        )
        chosen.append(decision.targets)
    assert chosen == [ON_SAFE, ON_A]


def test_a_launch_takes_its_time_at_any_speed() -> None:
    """On capacity that lasts, each gang costs its price for its start and its work."""
    lasting = replace(prior_rates(), up_per_hour=(1e-6,) * len(prior_rates().up_per_hour))
    strategy = AdaptiveStrategy(lifetimes=LifetimeModel(prior=lasting))
    measured = tuple(ThroughputSample("V100", n, n**0.9) for n in range(1, 5))
    job = replace(
        task(deadline_s=30 * HOUR_S, nodes=(1, 4), save_s=0.0),
        startup_s=1800.0,
        throughput=Throughput(measured),
    )
    offers = [offer(SPOT_A, 2.0), replace(SAFE_OFFER, nodes_available=2)]
    view = build_view(job, offers, uninterruptible_s=300.0)
    weighed = only(strategy.decide(view)).alternatives
    for option in gang_options(view, view.jobs[0]):
        name = f"{option.nodes} × {option.pool}"
        for each in (each for each in weighed if each.choice == name and option.pool == SPOT_A):
            hours = (option.start_s + job.work.amount / option.units_per_s) / 3600
            assert each.value_usd == pytest.approx(option.usd_per_hour * hours, rel=0.06)


def test_of_two_pools_the_cheaper_is_launched() -> None:
    assert _decide([offer(SPOT_A, 2.0), offer(SPOT_B, 1.5)]).targets == ON_B


@pytest.mark.parametrize(("price_usd_per_hour", "expected"), [(1.99, ON_A), (0.2, ON_B)])
def test_a_running_gang_moves_only_for_much_money(
    price_usd_per_hour: float, expected: tuple[Target, ...]
) -> None:
    decision = _decide(
        [offer(SPOT_A, 2.0), offer(SPOT_B, price_usd_per_hour)],
        done_h=1.0,
        now_h=1.0,
        nodes=nodes_in(SPOT_A),
    )
    assert decision.targets == expected


@pytest.mark.parametrize(("down_for_h", "expected"), [(0.0, WAIT), (30.0, ON_B)])
def test_a_cheap_pool_that_stays_away_is_not_waited_for(
    down_for_h: float, expected: tuple[Target, ...]
) -> None:
    strategy = AdaptiveStrategy()
    for minutes in range(int(60 * down_for_h)):
        for pool, up in ((SPOT_A, False), (SPOT_B, True)):
            now = after(0) + timedelta(minutes=minutes)
            strategy.lifetimes.observe(("job", str(pool), 1), "aws/us-east-1", up, now)
    decision = _decide(
        [offer(SPOT_A, 0.5, 0), offer(SPOT_B, 2.0)],
        now_h=down_for_h,
        deadline_h=down_for_h + 12,
        strategy=strategy,
    )
    assert decision.targets == expected


def test_without_safe_capacity_spot_is_taken() -> None:
    view = build_view(task(deadline_s=16 * HOUR_S), [offer(SPOT_A, 2.0)])
    assert only(AdaptiveStrategy().decide(view)).targets == ON_A


def test_what_is_done_ends_on_what_runs() -> None:
    assert _decide([offer(SPOT_A, 2.0)], done_h=4.0, nodes=nodes_in(SPOT_A)).targets == ON_A


def test_the_program_is_solved_once_while_nothing_moves() -> None:
    strategy = AdaptiveStrategy()
    programs = set()
    for tick in range(10):
        _decide([offer(SPOT_A, 2.0)], now_h=tick / 12, strategy=strategy)
        programs.add(id(strategy._programs[0]["job"]))
    assert len(programs) == 1
    _decide([offer(SPOT_A, 3.0)], now_h=1.0, strategy=strategy)
    assert id(strategy._programs[0]["job"]) not in programs


def test_jobs_that_are_alike_share_a_program() -> None:
    first, alike, more_expensive = AdaptiveStrategy(), AdaptiveStrategy(), AdaptiveStrategy()
    _decide([offer(SPOT_A, 2.0)], done_h=1.0, strategy=first)
    for other, usd_per_hour in ((alike, 2.0), (more_expensive, 3.0)):
        share_lifetimes(other, first)
        _decide([offer(SPOT_A, usd_per_hour)], strategy=other)
    program = first._programs[0]["job"]
    assert alike._programs[0]["job"] is program, "with less time to spare"
    assert more_expensive._programs[0]["job"] is not program


def test_every_alternative_is_reported_with_its_value_and_estimates() -> None:
    decision = _decide([offer(SPOT_A, 2.0), offer(SPOT_B, 2.0, 0)])
    reported = {each.choice: each for each in decision.alternatives}
    assert set(reported) == {f"1 × {SPOT_A}", f"1 × {SPOT_B}", f"1 × {SAFE}", "wait"}
    chosen = reported[f"1 × {SPOT_A}"]
    assert chosen.value_usd == min(
        a.value_usd for a in reported.values() if a.value_usd is not None
    )
    assert "goes" in chosen.note
    assert "times an hour at that age" in chosen.note
    assert reported[f"1 × {SPOT_B}"].value_usd is None
    assert reported[f"1 × {SPOT_B}"].note.startswith("no capacity; away for")


def test_an_alternative_that_would_be_late_has_no_value() -> None:
    decision = _decide([offer(SPOT_A, 2.0)], deadline_h=4.1)
    (wait,) = (each for each in decision.alternatives if each.choice == "wait")
    assert wait.value_usd is None
    assert wait.note == "would miss the deadline"


def _grows(deadline_h: float, nodes: tuple[Node, ...] = ()) -> Decision:
    """4 h of work on one node; a second one may help, at a tenth less for each."""
    speed = Throughput((ThroughputSample("V100", 1, 1.0),), scaling_efficiency=0.9)
    view = build_view(
        replace(task(deadline_s=deadline_h * HOUR_S, nodes=(1, 2)), throughput=speed),
        [offer(SPOT_A, 2.0), SAFE_OFFER],
        nodes=nodes,
    )
    return only(AdaptiveStrategy().decide(view))


@pytest.mark.parametrize(("deadline_h", "nodes"), [(16, 1), (4, 2)])
def test_a_gang_is_as_large_as_the_deadline_asks(deadline_h: float, nodes: int) -> None:
    assert _grows(deadline_h).targets[0].nodes == nodes


@pytest.mark.parametrize("deadline_h", [4.4, 4.5])
def test_a_small_gang_that_is_hardly_in_time_does_not_rule_spot_out(deadline_h: float) -> None:
    """A larger one, on demand, would be in time with room to spare."""
    assert _grows(deadline_h).targets == (Target(SPOT_A, 2),)


def test_what_is_reported_alternatives_has_no_infinite_value() -> None:
    decision = _decide([offer(SPOT_A, 2.0, 0)], deadline_h=4.2)
    assert decision.targets == ON_SAFE
    assert "inf" not in decision.reason
    assert any(reported.value_usd is None for reported in decision.alternatives)


def test_spot_that_the_deadline_leaves_no_time_to_launch_is_not_a_choice() -> None:
    """A start of 150 s, saves and a tick at risk are more than what is left to spare."""
    decision = _decide([offer(SPOT_A, 2.0)], deadline_h=4.67)
    (spot,) = [reported for reported in decision.alternatives if str(SPOT_A) in reported.choice]
    assert decision.targets == ON_SAFE
    assert spot.value_usd is None
    assert "miss the deadline" in spot.note


def test_the_present_gang_is_weighed_though_better_pools_fill_the_list() -> None:
    decision = _decide(
        [offer(SPOT_A, 2.0), offer(SPOT_B, 1.99)],
        nodes=nodes_in(SPOT_A),
        strategy=AdaptiveStrategy(pools=1),
    )
    assert decision.targets == ON_A


def test_a_phase_that_may_not_pause_does_not_wait() -> None:
    job = task(deadline_s=30 * HOUR_S)
    job = replace(job, phases=(replace(job.phases[0], may_pause=False),))
    view = build_view(job, [offer(SPOT_A, 2.0, 0), SAFE_OFFER], done=HOUR_S, nodes=nodes_in(SAFE))
    assert only(AdaptiveStrategy().decide(view)).targets == ON_SAFE


@pytest.mark.parametrize("parameters", [{"pools": 0}, {"memory_h": 0}, {"step_s": 0}])
def test_the_smallest_parameters_decide_too(parameters: dict[str, int]) -> None:
    strategy = build(StrategySpec("adaptive", parameters))
    for tick in range(3):
        view = build_view(task(), [offer(SPOT_A, 2.0), SAFE_OFFER], now_s=300.0 * tick)
        assert only(strategy.decide(view)).targets == ON_A


def test_a_gang_is_not_let_go_minutes_before_the_end() -> None:
    """Another gang would have to start first: 200 s of work cost less than a launch."""
    for minutes_ago in range(0, 30, 2):
        decision = _decide(
            [offer(SPOT_A, 2.0, 0)],
            deadline_h=16 - minutes_ago / 60,
            now_h=9,
            done_h=4.0 - 200 / HOUR_S,
            nodes=nodes_in(SAFE),
        )
        assert decision.targets == ON_SAFE


def test_of_several_pools_one_that_is_up_is_not_left_for_an_older_one() -> None:
    decision = _decide([offer(SPOT_A, 2.0), offer(SPOT_B, 2.0)], deadline_h=40)
    assert decision.targets in (ON_A, ON_B)
    (wait,) = (each for each in decision.alternatives if each.choice == "wait")
    assert wait.value_usd is None


def _down_classes(ages_h: dict[Pool, float]) -> list[int]:
    """Of the lane of each pool; none has capacity, for so long by now."""
    offers = [offer(pool, 2.0, 0) for pool in ages_h]
    view = build_view(task(deadline_s=40 * HOUR_S), [*offers, SAFE_OFFER])
    job_view = view.jobs[0]
    options = {option.pool: option for option in gang_options(view, job_view)}
    candidates = [
        replace(candidate_of(job_view, options[pool], LifetimeModel()), age_h=age_h)
        for pool, age_h in ages_h.items()
    ]
    state = ProgramState(view, job_view, options[SAFE], job_view.job.work.amount, 600.0)
    return [lane.down_class for lane in build_problem(candidates, state).lanes]


def test_a_pool_away_for_long_is_expected_to_go_and_come_like_others_once_it_is_back() -> None:
    assert _down_classes({SPOT_A: 10.0}) == [0]


def test_beside_a_pool_that_went_since_one_away_for_long_stays_so() -> None:
    later, earlier = _down_classes({SPOT_A: 3.0, SPOT_B: 10.0})
    assert later == 0
    assert earlier == prior_rates().class_at(10.0)


def test_a_program_is_reused_until_the_end_of_a_long_job() -> None:
    strategy = AdaptiveStrategy()
    _decide([offer(SPOT_A, 2.0)], deadline_h=92, strategy=strategy)
    assert strategy._programs[0]["job"].first == 0


@pytest.mark.parametrize("tick_s", [60.0, 300.0, 900.0])
@pytest.mark.parametrize("work_s", [600, 1200, 2400, 5400])
@pytest.mark.parametrize("deadline_h", [4, 24])
def test_a_gang_that_is_nearly_done_is_not_given_up(
    tick_s: float, work_s: float, deadline_h: float
) -> None:
    run = replay(
        task(work_s=work_s, deadline_s=deadline_h * HOUR_S),
        rules("adaptive"),
        market(always(SPOT_A, 4, 2.0), always(SAFE, 4, 8.0)),
        machines=Machines(),
        powers=Powers(),
        hazards=LearnedHazard(lambda _: DEFAULT_HAZARD),
        tick_s=tick_s,
    )
    decided = [each.event for each in run.events if isinstance(each.event, DecisionMade)]
    assert [decision.targets for decision in decided] == [((str(SPOT_A), 1),)]
    finished_at, start_at = run.summary.finished_at, run.summary.start_at
    assert finished_at is not None
    assert start_at is not None
    assert (finished_at - start_at).total_seconds() < work_s + 300 + tick_s


SLOWNESS = 0.15


JOB = task(2 * HOUR_S, 48 * HOUR_S)


def spot(pool: Pool, usd_per_hour: float) -> Offer:
    hazard = SomeHazard().hazard_per_hour(pool) or Estimate.exact(0.0, Basis.LISTED, "test")
    return replace(offer(pool, usd_per_hour, 9), hazard_per_hour=hazard)


def slow(view: View, done_units: float) -> View:
    """The view of a job that was measured at a fraction of its predicted speed."""
    (job_view,) = view.jobs
    predicted = JOB.throughput.units_per_s(view.machines[SPOT_A], 1)
    assert predicted is not None
    progress = Progress(
        done_units=done_units,
        saved_units=0.0,
        state=GangState.TRAINING,
        generation=1,
        measured_units_per_s=predicted.value * SLOWNESS,
    )
    return replace(view, jobs=(replace(job_view, progress=progress, speed_factor=SLOWNESS),))


def test_it_is_not_moved_to_where_it_was_not_measured() -> None:
    offers = [spot(SPOT_A, 2.0), spot(SPOT_B, 4.0)]
    view = slow(build_view(JOB, offers, nodes=nodes_in(SPOT_A)), 0.1 * JOB.work.amount)
    assert only(MilpStrategy().decide(view)).targets == (Target(SPOT_A, 1),)


def test_it_keeps_its_nodes_when_its_plan_is_over() -> None:
    """The plan was made before the slowness was known, so it ends long before the work."""
    offers = [spot(SPOT_A, 2.0)]
    strategy = MilpStrategy(replan_s=48 * HOUR_S)
    view = build_view(JOB, offers, nodes=nodes_in(SPOT_A))
    strategy.decide(view)
    late = replace(slow(view, 0.5 * JOB.work.amount), now=after(4 * HOUR_S))
    assert only(strategy.decide(late)).targets == (Target(SPOT_A, 1),)
