"""A job away from its data takes the time to fetch them, and pays for what moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from costopt.backtesting.replay import ReplayResult, replay
from costopt.domain.cached_data import CachedData
from costopt.domain.events import (
    CheckpointCommitted,
    DataMoved,
    Event,
    GangFormed,
    GuardTripped,
    TrainingStarted,
)
from costopt.domain.history import PoolHistory
from costopt.domain.job import DataLocation, Job
from costopt.domain.market import CapacityType, Pool
from costopt.domain.policy import Limits
from costopt.domain.progress import Progress
from costopt.domain.transfers import Transfer
from costopt.domain.view import Decision, Desired, JobView, Target, View
from costopt.ledger.job_account import JobAccount
from costopt.strategies.gang_options import gang_options
from tests.support.engine_fixtures import (
    HOUR_S,
    SPOT_A,
    SPOT_B,
    Follow,
    Machines,
    Powers,
    SomeHazard,
    always,
    changing,
    rules,
    task,
)
from tests.support.market_fixtures import P3, T0, market

HOME = "aws/us-east-1"
FAR = Pool("aws", "us-west-2", "us-west-2a", "p3.2xlarge", CapacityType.SPOT)
FAR_B = Pool("aws", "us-west-2", "us-west-2b", "p3.2xlarge", CapacityType.SPOT)
DATA_GIB, SAVED_GIB = 90.0, 9.0
GBPS = 0.1 * 2**30 * 8 / 1e9
"""A tenth of a GiB in a second."""
FETCH_S = DATA_GIB / 0.1
RESTORED_S = (DATA_GIB + SAVED_GIB) / 0.1


def price(start: str, end: str) -> Transfer | None:
    """Dearer on the way back."""
    return Transfer(0.02 if start == HOME else 0.05, GBPS, "made up")


def away(nodes: tuple[int, int] = (1, 1), work_s: float = 4 * HOUR_S) -> Job:
    job = task(work_s, nodes=nodes)
    return replace(
        job,
        data=DataLocation("s3://data", DATA_GIB, HOME),
        checkpoint=replace(job.checkpoint, size_gib=SAVED_GIB, region=HOME, interval_s=3600.0),
    )


class Stations:
    """Wants one target after another, each from its hour on."""

    def __init__(self, *stations: tuple[float, Target]) -> None:
        self.stations = stations

    def decide(self, view: View) -> Desired:
        begun = [t for hour, t in self.stations if view.now >= T0 + timedelta(hours=hour)]
        return Desired(tuple(Decision(jv.job.name, (begun[-1],), "as told") for jv in view.jobs))


def run(
    job: Job,
    strategy: Follow | Stations,
    *histories: PoolHistory,
    priced: bool = True,
    limits: Limits | None = None,
) -> ReplayResult:
    everywhere = histories or tuple(always(p, 9, 2.0) for p in (SPOT_A, SPOT_B, FAR, FAR_B))
    return replay(
        job,
        rules("greedy_spot", limits=limits),
        market(*everywhere),
        machines=Machines(),
        powers=Powers(),
        hazards=SomeHazard(),
        strategy=strategy,
        tick_s=60.0,
        transfers=price if priced else None,
    )


def of(done: ReplayResult, kind: type[Event]) -> Sequence[Event]:
    return [each.event for each in done.events if isinstance(each.event, kind)]


def moves(done: ReplayResult, why: str) -> list[tuple[str, float, int | None]]:
    found = (each.event for each in done.events)
    return [
        (e.to_region, e.gib, e.usd_micros)
        for e in found
        if isinstance(e, DataMoved) and e.why == why
    ]


def test_starts_and_saves_away_from_the_data_take_time_and_dollars() -> None:
    at_home, far = (run(away(), Follow(Target(pool, 1))) for pool in (SPOT_A, FAR))
    assert moves(at_home, "start") == moves(at_home, "save") == []
    assert moves(far, "start") == [("aws/us-west-2", DATA_GIB, 1_800_000)]
    assert len(of(far, CheckpointCommitted)) == 4
    assert moves(far, "save") == [(HOME, SAVED_GIB, 450_000)] * 4
    starts = [of(done, TrainingStarted)[0].at for done in (at_home, far)]
    assert (starts[1] - starts[0]).total_seconds() == pytest.approx(FETCH_S)
    ends = [done.summary.finished_at for done in (at_home, far)]
    assert ends[0] is not None
    assert ends[1] is not None
    assert (ends[1] - ends[0]).total_seconds() == pytest.approx(FETCH_S)


def test_transfers_are_part_of_what_was_spent() -> None:
    done = run(away(), Follow(Target(FAR, 1)))
    summary = done.summary
    assert summary.transfer_usd_micros == 1_800_000 + 4 * 450_000
    assert (
        summary.usd_micros
        == summary.spot_usd_micros + summary.on_demand_usd_micros + summary.transfer_usd_micros
    )
    account = JobAccount("job")
    for each in done.events:
        account.apply(each.event)
    assert account.curves(summary.now).spend[-1].usd_micros == summary.usd_micros
    day = timedelta(days=1)
    assert account.usd_micros_between(T0 - day, summary.now + day) == summary.usd_micros
    half = T0 + timedelta(hours=2)
    parts = (
        account.usd_micros_between(T0 - day, half),
        account.usd_micros_between(half, summary.now + day),
    )
    assert sum(parts) == summary.usd_micros
    assert parts[0] > 1_800_000


def test_transfers_count_against_the_budget() -> None:
    done = run(away(), Follow(Target(FAR, 1)), limits=Limits(max_usd=1.8))
    assert [type(e) for e in of(done, GuardTripped)] == [GuardTripped]
    assert done.summary.done_units == 0


def test_a_move_of_unknown_price_is_reported_as_unknown() -> None:
    done = run(away(), Follow(Target(FAR, 1)), priced=False)
    assert moves(done, "start") == [("aws/us-west-2", DATA_GIB, None)]
    assert done.summary.transfer_usd_micros is None
    assert done.summary.usd_micros == done.summary.spot_usd_micros
    assert run(away(), Follow(Target(SPOT_A, 1)), priced=False).summary.transfer_usd_micros == 0


def test_what_remains_of_a_gang_has_the_data() -> None:
    taken = changing(FAR, (0, 2, 2.0), (2 * HOUR_S, 1, 2.0))
    done = run(away((1, 2)), Follow(Target(FAR, 2)), taken)
    assert len(of(done, GangFormed)) >= 2
    assert len(moves(done, "start")) == 1


def test_a_gang_of_new_nodes_fetches_the_checkpoint_too() -> None:
    stations = Stations((0, Target(FAR, 1)), (3, Target(FAR_B, 1)))
    done = run(away(), stations)
    first, second = of(done, GangFormed)
    fetched = [("aws/us-west-2", DATA_GIB, 1_800_000), ("aws/us-west-2", SAVED_GIB, 180_000)]
    assert moves(done, "start") == [fetched[0], *fetched]
    begins = of(done, TrainingStarted)[1].at
    assert (begins - second.at).total_seconds() >= RESTORED_S
    assert first.at < second.at


def test_the_last_save_before_a_move_is_where_the_job_was() -> None:
    away_from_home = run(away(), Stations((0, Target(SPOT_A, 1)), (2.5, Target(FAR, 1))))
    after = len(of(away_from_home, CheckpointCommitted)) - 3
    assert after > 0
    assert len(moves(away_from_home, "save")) == after
    back = run(away(), Stations((0, Target(FAR, 1)), (2.75, Target(SPOT_A, 1))))
    assert len(moves(back, "save")) == 3
    assert len(of(back, CheckpointCommitted)) > 3
    assert len(moves(back, "start")) == 1


def test_a_start_is_as_long_as_strategies_assume() -> None:
    job = away()
    done = run(job, Follow(Target(FAR, 1)))
    follow = Follow(Target(FAR, 1))
    run(job, follow)
    view = replace(follow.views[0], jobs=(JobView(job, Progress()),))
    option = next(o for o in gang_options(view, view.jobs[0]) if o.pool == FAR)
    took_s = (of(done, TrainingStarted)[0].at - T0).total_seconds()
    # They reckon with a restore too, of the checkpoint and in seconds.
    restore_s = job.checkpoint.restore_s + SAVED_GIB / 0.1
    assert option.start_s == pytest.approx(took_s + restore_s, abs=1.0)
    starting = follow.views[1].jobs[0].progress.starting_until
    assert starting is not None
    assert (starting - T0).total_seconds() == pytest.approx(took_s)


def test_the_slower_of_network_and_transfer_counts() -> None:
    narrow = replace(P3, network_gbps=0.8)
    assert Transfer(0.0, 8.0, "made up").hours(1.0, narrow) == pytest.approx(
        2**30 * 8 / 0.8e9 / 3600
    )
    assert Transfer(0.0, None, "made up").hours(1.0, replace(P3, network_gbps=None)) == 0.0


WEIGHTS_GIB = 45.0


def cached(region: str | None = HOME, nodes: tuple[int, int] = (1, 1), **more: object) -> Job:
    item = CachedData("s3://weights", "weights", WEIGHTS_GIB, region, **more)  # type: ignore[arg-type]
    return replace(task(nodes=nodes), cache=(item,))


def test_each_new_node_fetches_the_cache_and_keeps_it() -> None:
    job = cached(nodes=(1, 2))
    done = run(job, Stations((0.0, Target(FAR, 2)), (2.0, Target(FAR, 1))))
    assert len(of(done, GangFormed)) == 2
    assert moves(done, "cache") == [("aws/us-west-2", 2 * WEIGHTS_GIB, 1_800_000)]
    first, second = (event.at for event in of(done, TrainingStarted))
    fetch_s = job.cache_s(Machines().instance_type(FAR))
    assert (first - T0).total_seconds() == pytest.approx(job.startup_s + fetch_s)
    again_s = (second - T0).total_seconds() - 2 * HOUR_S
    checkpoint = job.checkpoint
    assert again_s == pytest.approx(checkpoint.save_s + checkpoint.restore_s, abs=1.0)


@pytest.mark.parametrize("region", [HOME, None])
def test_the_cache_takes_its_time_in_its_own_region_too(region: str | None) -> None:
    job = cached(region)
    follow = Follow(Target(SPOT_A, 1))
    done = run(job, follow)
    assert moves(done, "cache") == []
    took_s = (of(done, TrainingStarted)[0].at - T0).total_seconds()
    assert took_s == pytest.approx(job.startup_s + WEIGHTS_GIB * 2**30 * 8 / 10e9)
    view = replace(follow.views[0], jobs=(JobView(job, Progress()),))
    option = next(o for o in gang_options(view, view.jobs[0]) if o.pool == SPOT_A)
    assert option.start_s == pytest.approx(took_s + job.checkpoint.restore_s)


def test_a_warm_image_and_a_measured_speed_change_the_time() -> None:
    started = [
        (of(run(job, Follow(Target(FAR, 1))), TrainingStarted)[0].at - T0).total_seconds()
        for job in (cached(in_image=True), cached(gbps=1.0), cached())
    ]
    assert started[0] == task().startup_s < started[2] < started[1]


def test_a_cache_whose_move_has_no_price_is_reported_as_unknown() -> None:
    done = run(cached(), Follow(Target(FAR, 1)), priced=False)
    assert done.summary.transfer_usd_micros is None
