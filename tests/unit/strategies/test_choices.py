"""What strategies make of data elsewhere, dated offers, speeds of phases and no deadline."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from costopt.domain.account import Account, Quota, Tenant
from costopt.domain.job import CheckpointSpec, DataLocation, Job, Phase
from costopt.domain.market import CapacityType, Pool
from costopt.domain.throughput import Throughput, ThroughputSample
from costopt.domain.transfers import Transfer, transfer_table
from costopt.domain.view import Target
from costopt.optimize.request import PlanRequest
from costopt.strategies.adaptive.choices import MIN_WAIT_SAVING, ValuedAlternative, choose
from costopt.strategies.adaptive.strategy import AdaptiveStrategy
from costopt.strategies.gang_options import (
    GangOption,
    gang_options,
    save_interval_s,
    uninterruptible_options,
)
from costopt.strategies.milp import MilpStrategy
from costopt.strategies.patience import with_deadlines
from costopt.strategies.remaining_time import seconds_to_finish
from costopt.strategies.shield import ShieldedStrategy
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, Follow, Scene, always, task
from tests.support.engines import start_engine
from tests.support.market_fixtures import after
from tests.support.strategy_fixtures import Wants, build_view, nodes_in, offer, only

ELSEWHERE = "gcp/us-central1"


WAY = Transfer(0.12, 8.589934592, "made up")


RESERVED = SAFE.with_capacity_type(CapacityType.RESERVED)


FAR = Pool("gcp", "us-central1", "us-central1-a", SPOT_A.instance_type, CapacityType.SPOT)


def with_data(size_gib: float = 600.0) -> Job:
    return replace(task(), data=DataLocation("gs://data", size_gib, ELSEWHERE))


def option_of(job: Job, transfers: Mapping[tuple[str, str], Transfer]) -> GangOption | None:
    view = replace(build_view(job, [offer(SAFE, 8.0)]), transfers=transfers)
    return next(iter(gang_options(view, view.jobs[0])), None)


def test_a_start_fetches_the_data_and_the_shield_waits_for_them() -> None:
    job = with_data()
    near = option_of(task(), {})
    far = option_of(job, {(ELSEWHERE, "aws/us-east-1"): WAY})
    assert near is not None
    assert far is not None
    assert near.start_s == job.overhead_s
    assert far.start_s == pytest.approx(job.overhead_s + 600.0)
    late_s = seconds_to_finish(far, job, HOUR_S) - seconds_to_finish(near, job, HOUR_S)
    assert late_s == pytest.approx(600.0)


@pytest.mark.parametrize(("size_gib", "chosen"), [(1.0, FAR), (600.0, SPOT_A)])
def test_dollars_for_moving_data_count_where_a_strategy_weighs_pools(
    size_gib: float, chosen: Pool
) -> None:
    data = DataLocation("s3://data", size_gib, "aws/us-east-1")
    job = replace(task(deadline_s=16 * HOUR_S), data=data)
    offers = [offer(SPOT_A, 2.0), offer(FAR, 1.5), offer(SAFE, 8.0)]
    ways = {("aws/us-east-1", ELSEWHERE): replace(WAY, gbps=None)}
    view = replace(build_view(job, offers), transfers=ways)
    assert only(AdaptiveStrategy().decide(view)).targets == (Target(chosen, 1),)


def test_saves_are_as_far_apart_as_their_dollars_say() -> None:
    checkpoint = CheckpointSpec("s3://c", save_s=30.0, size_gib=1.0, region=ELSEWHERE)
    job = replace(task(deadline_s=16 * HOUR_S), checkpoint=checkpoint)
    ways = {(ELSEWHERE, "aws/us-east-1"): WAY, ("aws/us-east-1", ELSEWHERE): WAY}
    option = option_of(job, ways)
    assert option is not None
    assert option.save_paid_s == pytest.approx(3600 * 0.12 / 8.0)
    interval_s = save_interval_s(checkpoint, paid_s=option.save_paid_s)
    assert interval_s == pytest.approx((2 * 3600 / 0.39 * (30.0 + 54.0)) ** 0.5)
    fetched_usd = 0.12 / (job.work.amount / option.units_per_s / 3600)
    saves_usd = 0.12 * 3600 / interval_s
    assert option.score_usd_per_hour == pytest.approx(8.0 + fetched_usd + saves_usd)


def test_where_the_gang_runs_the_data_are() -> None:
    data = DataLocation("s3://data", 600.0, "aws/us-east-1")
    job = replace(task(deadline_s=16 * HOUR_S), data=data)
    ways = {("aws/us-east-1", ELSEWHERE): WAY}
    view = replace(build_view(job, [offer(FAR, 1.5)], nodes=nodes_in(FAR)), transfers=ways)
    (option,) = gang_options(view, view.jobs[0])
    assert option.score_usd_per_hour == pytest.approx(1.5)


def test_a_pool_to_which_no_transfer_has_a_price_is_not_an_option() -> None:
    assert option_of(with_data(), {}) is None


@pytest.mark.parametrize(
    ("from_h", "until_h", "usable", "lasting"),
    [(None, None, True, True), (-1, 40, True, True), (-1, 39, True, False), (1, 40, False, False),
     (-2, 0, False, False)],
)  # fmt: skip
def test_a_dated_offer_is_an_option_in_its_time_and_safe_to_the_deadline(
    from_h: float | None, until_h: float | None, usable: bool, lasting: bool
) -> None:
    def at(hours: float | None) -> datetime | None:
        return None if hours is None else after(0) + timedelta(hours=hours)

    dated = replace(offer(RESERVED, 0.0), from_at=at(from_h), until_at=at(until_h))
    view = build_view(task(deadline_s=40 * HOUR_S), [dated])
    found = gang_options(view, view.jobs[0])
    assert bool(found) is usable
    assert bool(uninterruptible_options(found)) is lasting


def test_each_phase_has_its_own_speed() -> None:
    slow = Throughput((ThroughputSample("V100", 1, 0.5),))
    phases = (Phase("slow", 0.5, 1, 1, throughput=slow),
              Phase("paused", 0.5, 1, 1, evaluate_every=100.0, evaluation_s=100.0))  # fmt: skip
    job = replace(task(4 * HOUR_S), phases=phases)
    view = build_view(job, [offer(SAFE, 8.0)])
    (option,) = gang_options(view, view.jobs[0])
    assert option.units_per_s == 0.5
    assert [stretch.units_per_s for stretch in option.stretches] == [0.5, 0.5]
    assert sum(s for _, s in option.work_left(0.0)) == pytest.approx(8 * HOUR_S)


def test_a_plan_knows_the_transfers_and_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[PlanRequest] = []

    def watched(request: PlanRequest, **_: object) -> None:
        asked.append(request)

    monkeypatch.setattr("costopt.optimize.planner.plan", watched)
    account = Account((Quota("q", max_gpus=8),), {"blue": Tenant("blue", 2.0)})
    ways = {(ELSEWHERE, "aws/us-east-1"): WAY}
    view = replace(build_view(with_data(), [offer(SAFE, 8.0)]), transfers=ways, account=account)
    MilpStrategy().decide(view)
    (request,) = asked
    assert (request.quotas, request.tenants) == (account.quotas, account.tenants)
    assert request.transfers == ways


def test_the_view_holds_the_transfers_and_the_account() -> None:
    strategy = Follow()
    account = Account((Quota("q", max_gpus=8),))
    scene = Scene(always(SPOT_A, 1, 2.0), jobs=[with_data()], strategy=strategy)
    engine = scene.engine
    world = replace(engine.world, transfers=lambda *way: WAY if way[0] == ELSEWHERE else None)
    settings = replace(scene.settings, account=account)
    start_engine(scene.jobs, scene.policy, strategy, world, settings).tick()
    assert strategy.views[-1].transfers == {
        (ELSEWHERE, "aws/us-east-1"): WAY,
        (ELSEWHERE, ELSEWHERE): WAY,
    }
    assert strategy.views[-1].account == account


def test_transfers_are_looked_up_both_ways_and_within_each_place() -> None:
    job, here = with_data(), "aws/us-east-1"
    known = transfer_table([job], [SPOT_A, SAFE], lambda *_: WAY)
    within = {(here, here), (ELSEWHERE, ELSEWHERE)}
    assert set(known) == {(ELSEWHERE, here), (here, ELSEWHERE)} | within
    assert set(transfer_table([task()], [SPOT_A], lambda *_: WAY)) == {(here, here)}
    assert transfer_table([job], [SPOT_A], lambda *_: None) == {}


def test_a_replayed_job_is_as_slow_as_its_phases_and_no_slower_than_predicted() -> None:
    slow = Throughput((ThroughputSample("V100", 1, 0.5),))
    phases = (Phase("slow", 0.5, 1, 1, throughput=slow), Phase("main", 0.5, 1, 1))
    job = replace(task(HOUR_S), phases=phases)
    scene = Scene(always(SPOT_A, 1, 2.0), jobs=[job])
    factors: set[float] = set()
    while not (result := scene.tick()).is_done:
        factors.add(scene.engine.training.speed_factor["job"])
    assert factors == {1.0}
    saves_s = 2 * 10.0 + 10.0
    expected_s = 1.5 * HOUR_S + job.startup_s + saves_s
    assert (result.now - after(0)).total_seconds() == pytest.approx(expected_s, abs=120.0)


def test_what_can_run_runs_where_waiting_saves_next_to_nothing() -> None:
    runs = ValuedAlternative(10.0, (Target(SPOT_A, 1),), "launch")
    wait = ValuedAlternative(10.0 / (1 + MIN_WAIT_SAVING / 2), (), "wait")
    late = ValuedAlternative(math.inf, (Target(SAFE, 1),), "go to")
    assert choose([runs, late, wait]) is runs
    assert choose([runs, late, replace(wait, cost=9.8)]).what == "wait"
    assert choose([late, wait]) is wait


def test_waiting_costs_more_the_less_slack_is_left() -> None:
    def wait_usd(deadline_h: float) -> float | None:
        job = task(deadline_s=deadline_h * HOUR_S)
        view = build_view(job, [offer(SPOT_A, 2.0), offer(SAFE, 8.0)])
        return only(AdaptiveStrategy().decide(view)).wait_usd

    ample, tight, none = wait_usd(48), wait_usd(1.5), wait_usd(1.2)
    assert ample is not None
    assert tight is not None
    assert none is not None
    assert 0 <= ample < tight <= none


SAFE_OFFER, SPOT_OFFER = offer(SAFE, 8.0), offer(SPOT_A, 2.0)


def _open_ended(usd_per_hour: float) -> Job:
    return replace(task(work_s=4 * HOUR_S), deadline_at=None, usd_per_hour_waited=usd_per_hour)


def _patience_h(usd_per_hour: float) -> float:
    job = (
        with_deadlines(build_view(_open_ended(usd_per_hour), [SAFE_OFFER, SPOT_OFFER])).jobs[0].job
    )
    assert job.deadline_at is not None
    return (job.deadline_at - job.start_at).total_seconds() / 3600


def test_a_job_waits_until_waiting_has_cost_what_safe_capacity_costs() -> None:
    """A little over 4 h at $8 an hour are $32: 16 h at $2 an hour waited, 4 h at $8."""
    assert _patience_h(2.0) == pytest.approx(4 + 16, rel=0.05)
    assert _patience_h(8.0) == pytest.approx(4 + 4, rel=0.05)


def test_a_deadline_stays_and_without_safe_capacity_there_is_no_hurry() -> None:
    view = build_view(task(), [SAFE_OFFER])
    assert with_deadlines(view) is view
    job = with_deadlines(build_view(_open_ended(1.0), [SPOT_OFFER])).jobs[0].job
    assert job.deadline_at == job.until_at


@pytest.mark.parametrize(("now_h", "waits"), [(1.0, True), (30.0, False)])
def test_it_goes_to_safe_capacity_when_its_patience_ends(now_h: float, waits: bool) -> None:
    view = build_view(_open_ended(2.0), [SAFE_OFFER], now_s=now_h * HOUR_S)
    decision = only(ShieldedStrategy(Wants()).decide(view))
    assert decision.targets == (() if waits else (Target(SAFE, 1),))
