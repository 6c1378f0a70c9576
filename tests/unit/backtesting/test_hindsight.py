"""The optimum of hindsight against trying everything, and against what our strategies pay."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costopt.backtesting import path_problem
from costopt.backtesting.hindsight import hindsight_optimum
from costopt.backtesting.replay import DEFAULT_TICK_S, replay
from costopt.domain.cached_data import GIGABITS_PER_GIB
from costopt.domain.history import MarketHistory
from costopt.domain.job import DataLocation, Job, Phase, Resources
from costopt.domain.market import CapacityType, Pool
from costopt.domain.policy import Limits
from costopt.domain.throughput import Throughput, ThroughputSample
from costopt.domain.transfers import Transfer
from tests.support.cant_be_late import NoHazard, hindsight_usd
from tests.support.engine_fixtures import BIG_SAFE, SAFE, SPOT_A, Machines, Powers, rules, task
from tests.support.market_fixtures import market, pool_history

GRID_S = 600.0
POLICY = rules("greedy_spot")
Lane = Sequence[float | None]
"""Dollars per hour at each tick, None where the pool is down."""


def _market(lanes: dict[Pool, Lane]) -> MarketHistory:
    histories = []
    for pool, prices in lanes.items():
        states: list[tuple[float, int | None, float | None]] = []
        for tick, price in enumerate(prices):
            state = (tick * GRID_S, 0 if price is None else 1, 9.0 if price is None else price)
            if not states or states[-1][1:] != state[1:]:
                states.append(state)
        histories.append(pool_history(pool, states, len(prices) * GRID_S))
    return market(*histories, tick_s=GRID_S)


def _job(work_s: float, overhead_s: float, span_s: float, restore_s: float = 0.0) -> Job:
    job = replace(task(work_s, span_s, save_s=0), startup_s=overhead_s)
    return replace(job, checkpoint=replace(job.checkpoint, restore_s=restore_s, interval_s=1e9))


def _by_trying(
    lanes: Sequence[Lane], job: Job, span_s: float, speeds: Sequence[float] = (1.0, 1.0)
) -> float:
    """Every sequence of pool-or-nothing, tick by tick."""
    ticks = math.ceil(span_s / GRID_S)
    choices = itertools.product(range(-1, len(lanes)), repeat=ticks)
    return min(_cost(choice, lanes, job, span_s, speeds) for choice in choices)


def _cost(
    choice: Sequence[int], lanes: Sequence[Lane], job: Job, span_s: float, speeds: Sequence[float]
) -> float:
    """Dollars of one sequence up to the end of the work, inf where it is not done in time."""
    usd, before, starting_s, done = 0.0, -1, 0.0, 0.0
    for tick, lane in enumerate(choice):
        price = None if lane < 0 else lanes[lane][tick]
        if lane >= 0 and price is None:
            return math.inf
        if lane >= 0 and lane != before:
            starting_s = job.startup_s + (job.checkpoint.restore_s if done > 0 else 0.0)
        before = lane
        if price is None:
            continue
        wasted_s = min(GRID_S, starting_s)
        starting_s -= wasted_s
        usd += price * GRID_S / 3600
        ends_s = tick * GRID_S + wasted_s + (job.work.amount - done) / speeds[lane]
        if ends_s <= (tick + 1) * GRID_S + 1e-9:
            return usd if ends_s <= span_s + 1e-9 else math.inf
        done += (GRID_S - wasted_s) * speeds[lane]
    return math.inf


prices = st.sampled_from([None, 1.0, 2.0, 5.0])
constant = st.sampled_from([None, 2.0])


def _check(
    lanes: list[Lane], job: Job, pools: Sequence[Pool], speeds: Sequence[float] = (1.0, 1.0)
) -> None:
    span_s = (job.until_at - job.start_at).total_seconds()
    history = _market(dict(zip(pools, lanes, strict=False)))
    best = hindsight_optimum(job, POLICY, history, Machines(), with_moments=True)
    expected = _by_trying(lanes, job, span_s, speeds)
    if best is None:
        assert not math.isfinite(expected)
        return
    assert best.low_usd == best.usd
    assert best.usd == pytest.approx(expected)
    assert best.moments[-1].usd == pytest.approx(expected)
    assert best.moments[-1].done_units == pytest.approx(job.work.amount)
    choice = [-1 if m.pool is None else list(pools).index(m.pool) for m in best.moments]
    assert _cost(choice, lanes, job, span_s, speeds) == pytest.approx(expected)


@settings(max_examples=60, deadline=None)
@given(
    lane=st.lists(prices, min_size=4, max_size=9),
    work_s=st.sampled_from([300.0, 600.0, 1100.0, 1800.0]),
    overhead_s=st.sampled_from([0.0, 30.0, 200.0, 700.0]),
    restore_s=st.sampled_from([0.0, 60.0]),
    cut_s=st.sampled_from([0.0, 250.0]),
)
def test_one_pool(
    lane: list[float | None], work_s: float, overhead_s: float, restore_s: float, cut_s: float
) -> None:
    span_s = len(lane) * GRID_S - cut_s
    _check([lane], _job(work_s, overhead_s, span_s, restore_s), [SPOT_A])


@settings(max_examples=40, deadline=None)
@given(
    pair=st.lists(st.tuples(prices, prices), min_size=4, max_size=7),
    work_s=st.sampled_from([600.0, 1100.0, 1800.0]),
    overhead_s=st.sampled_from([0.0, 30.0, 200.0, 700.0]),
    restore_s=st.sampled_from([0.0, 60.0]),
    cut_s=st.sampled_from([0.0, 250.0]),
    other=st.sampled_from([SAFE, BIG_SAFE]),
)
def test_two_pools(
    pair: list[tuple[float | None, float | None]],
    work_s: float,
    overhead_s: float,
    restore_s: float,
    cut_s: float,
    other: Pool,
) -> None:
    """Of one speed, and where the other has four GPUs in place of one."""
    job = _job(work_s, overhead_s, len(pair) * GRID_S - cut_s, restore_s)
    speeds = [_speed(job, SPOT_A), _speed(job, other)]
    job = replace(job, work=replace(job.work, amount=work_s * speeds[0]))
    _check([[a for a, _ in pair], [b for _, b in pair]], job, [SPOT_A, other], speeds)


def _speed(job: Job, pool: Pool) -> float:
    machine = Machines().instance_type(pool)
    assert machine is not None
    speed = job.gang_units_per_s(machine, 1)
    assert speed is not None
    return speed.value


def test_where_progress_must_be_rounded_the_bounds_hold_the_optimum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lane: list[float | None] = [1.0, 5.0, None, 2.0, 2.0, 1.0, 5.0, 1.0]
    job = _job(1500.0, 70.0 * math.sqrt(2), 4800.0)
    expected = _by_trying([lane], job, 4800.0)
    monkeypatch.setattr(path_problem, "MAX_LEVELS", 40)
    monkeypatch.setattr(path_problem, "MIN_ROUNDED_LEVELS", 40)
    monkeypatch.setattr(path_problem, "MAX_ROUNDED_LEVELS", 40)
    best = hindsight_optimum(job, POLICY, _market({SPOT_A: lane}), Machines())
    assert best is not None
    assert best.low_usd <= expected <= best.usd
    assert best.usd == pytest.approx(expected, rel=0.4)


def test_a_pool_that_is_always_up_may_be_launched_in_many_times() -> None:
    """Cheap in every third tick: four launches are cheaper than staying."""
    lane = [1.0, 50.0, 50.0] * 4
    best = hindsight_usd(_job(4 * 570.0, 30.0, 7200.0), POLICY, _market({SPOT_A: lane}), Machines())
    assert best == pytest.approx(4 / 6)


def test_no_strategy_pays_less_on_a_market_that_comes_and_goes() -> None:
    spot = ([2.0] * 5 + [None] * 4) * 12
    history = _market({SPOT_A: spot, SAFE: [8.0] * len(spot)})
    job = _job(20_000.0, 120.0, 40 * GRID_S)
    best = hindsight_usd(job, POLICY, history, Machines())
    assert best is not None
    for name in ("on_demand", "greedy_spot", "uniform_progress"):
        paid = replay(
            job, rules(name), history, machines=Machines(), powers=Powers(), hazards=NoHazard()
        )
        assert paid.summary.usd >= best - 1e-6


def _plain() -> tuple[Job, MarketHistory]:
    return _job(1200.0, 60.0, 6000.0), _market({SPOT_A: [2.0] * 20, SAFE: [8.0] * 20})


def test_it_respects_the_policy_s_capacity_types() -> None:
    job, history = _plain()
    safe_only = rules("on_demand", limits=Limits(capacity_types=(CapacityType.ON_DEMAND,)))
    cheap = hindsight_usd(job, POLICY, history, Machines())
    expensive = hindsight_usd(job, safe_only, history, Machines())
    assert cheap == pytest.approx(2.0 * 3 / 6)
    assert expensive == pytest.approx(8.0 * 3 / 6)


def test_it_is_not_defined_where_no_run_is_in_time() -> None:
    job, history = _plain()
    late = replace(job, deadline_at=job.start_at + timedelta(seconds=1200))
    assert hindsight_usd(late, POLICY, history, Machines()) is None


Capacity = Sequence[tuple[int, float]]
"""Nodes and dollars per node-hour of a pool at each tick."""


@dataclass(frozen=True)
class Gang:
    """A gang for trying everything: dollars and seconds of life by tick, speeds by stage."""

    pool: Pool
    nodes: int
    usd: Sequence[float]
    lives_s: Sequence[float]
    speeds: Sequence[float]
    allowed: Sequence[bool]
    fetch_s: float = 0.0
    fetch_usd: float = 0.0


@dataclass(frozen=True)
class Trying:
    """Every choice of every tick, with the rules of a replay."""

    gangs: Sequence[Gang]
    job: Job
    tick_s: float

    def lowest_usd(self) -> float:
        """Of all runs in time."""
        return self._least(0, None, False, 0.0, 0.0)

    @property
    def _span_s(self) -> float:
        return (self.job.until_at - self.job.start_at).total_seconds()

    def _least(
        self, tick: int, on: Gang | None, lives: bool, done: float, starting_s: float
    ) -> float:
        if tick * self.tick_s >= self._span_s - 1e-9:
            return math.inf
        best = self._least(tick + 1, None, False, done, 0.0)
        stage = 0 if done < self._bounds[0] - 1e-9 else len(self._bounds) - 1
        for gang in self.gangs:
            if not math.isfinite(gang.usd[tick]) or not gang.allowed[stage]:
                continue
            begin = self._begin(gang, on, lives, done, starting_s)
            best = min(best, begin[1] + self._tick(tick, gang, done, begin[0]))
        return best

    def _begin(
        self, gang: Gang, on: Gang | None, lives: bool, done: float, starting_s: float
    ) -> tuple[float, float]:
        """Seconds until it works, and dollars."""
        restore_s = self.job.checkpoint.restore_s if done > 0 else 0.0
        if gang is on and lives:
            return starting_s, 0.0
        if on is not None and on.pool == gang.pool and on is not gang:
            start_s = self.job.startup_s if gang.nodes > on.nodes else 0.0
            return max(start_s, starting_s) + restore_s, 0.0
        return self.job.startup_s + gang.fetch_s + restore_s, gang.fetch_usd

    def _tick(self, tick: int, gang: Gang, done: float, starting_s: float) -> float:
        lives_s = gang.lives_s[tick]
        work_s = max(0.0, lives_s - starting_s)
        after, left_s = self._worked(gang, done, work_s)
        if after >= self.job.work.amount - 1e-9:
            ends_s = (tick * self.tick_s) + lives_s - left_s
            return gang.usd[tick] if ends_s <= self._span_s + 1e-6 else math.inf
        rest = max(0.0, starting_s - lives_s)
        whole = lives_s >= self.tick_s
        return gang.usd[tick] + self._least(tick + 1, gang, whole, after, rest)

    def _worked(self, gang: Gang, done: float, work_s: float) -> tuple[float, float]:
        """What is done after so many seconds, and how many of them are left at the end."""
        for bound, speed in zip(self._bounds, gang.speeds, strict=True):
            if done < bound - 1e-9:
                took_s = min(work_s, (bound - done) / speed)
                done, work_s = done + took_s * speed, work_s - took_s
        return done, work_s

    @property
    def _bounds(self) -> list[float]:
        return list(itertools.accumulate(p.share * self.job.work.amount for p in self.job.phases))


def _elastic(work: float, ticks: int, startup_s: float, restore_s: float, *phases: Phase) -> Job:
    """One or two nodes, of which two are 1.6 times as fast."""
    speeds = Throughput(points=(ThroughputSample("V100", 1, 1.0), ThroughputSample("V100", 2, 1.6)))
    return replace(
        _job(work, startup_s, ticks * GRID_S, restore_s),
        throughput=speeds,
        resources=Resources(min_nodes=1, max_nodes=2),
        phases=phases or (Phase("all", 1.0, 1, 2),),
    )


def _record(pools: dict[Pool, Capacity], tick_s: float | None = GRID_S) -> MarketHistory:
    step_s = tick_s or DEFAULT_TICK_S
    histories = []
    for pool, ticks in pools.items():
        states: list[tuple[float, int | None, float | None]] = []
        for tick, state in enumerate(ticks):
            if not states or states[-1][1:] != state:
                states.append((tick * step_s, *state))
        histories.append(pool_history(pool, states, len(ticks) * step_s))
    return market(*histories, tick_s=tick_s)


def _gangs_in(pool: Pool, ticks: Capacity, *stages: tuple[float, float]) -> list[Gang]:
    return [
        Gang(
            pool,
            nodes,
            [usd * nodes * GRID_S / 3600 if free >= nodes else math.inf for free, usd in ticks],
            [GRID_S] * len(ticks),
            [speeds[nodes - 1] for speeds in stages],
            [speeds[nodes - 1] > 0 for speeds in stages],
        )
        for nodes in (1, 2)
    ]


capacity = st.tuples(st.integers(0, 2), st.sampled_from([1.0, 3.0]))


@settings(max_examples=40, deadline=None)
@given(
    pair=st.lists(st.tuples(capacity, st.sampled_from([(2, 4.0), (0, 4.0)])), min_size=4,
                  max_size=5),
    work=st.sampled_from([700.0, 1500.0, 2300.0]),
    startup_s=st.sampled_from([0.0, 120.0, 700.0]),
    restore_s=st.sampled_from([0.0, 60.0]),
)  # fmt: skip
def test_gangs_of_several_sizes(
    pair: list[tuple[tuple[int, float], tuple[int, float]]],
    work: float,
    startup_s: float,
    restore_s: float,
) -> None:
    """A gang may begin with nodes of another of its pool: at no start-up, if it is smaller."""
    job = _elastic(work, len(pair), startup_s, restore_s)
    spot, safe = [a for a, _ in pair], [b for _, b in pair]
    gangs = _gangs_in(SPOT_A, spot, (1.0, 1.6)) + _gangs_in(SAFE, safe, (1.0, 1.6))
    expected = Trying(gangs, job, GRID_S).lowest_usd()
    best = hindsight_optimum(
        job, POLICY, _record({SPOT_A: spot, SAFE: safe}), Machines(), with_moments=True
    )
    if best is None:
        assert not math.isfinite(expected)
        return
    assert best.low_usd == best.usd
    assert best.usd == pytest.approx(expected)
    assert best.moments[-1].usd == pytest.approx(expected)
    assert best.moments[-1].done_units == pytest.approx(work)


@settings(max_examples=30, deadline=None)
@given(
    ticks=st.lists(capacity, min_size=5, max_size=6),
    startup_s=st.sampled_from([0.0, 130.0]),
    first=st.sampled_from([(1.0, 1.6), (1.0, 1.1), (0.7, 1.4)]),
    only_one=st.booleans(),
)
def test_stages_with_speeds_and_sizes_of_their_own(
    ticks: list[tuple[int, float]], startup_s: float, first: tuple[float, float], only_one: bool
) -> None:
    """Where sizes are allowed in some stages only, it is a bound from below."""
    points = tuple(ThroughputSample("V100", n + 1, speed) for n, speed in enumerate(first))
    phases = (
        Phase("a", 0.5, 1, 1 if only_one else 2, throughput=Throughput(points=points)),
        Phase("b", 0.5, 1, 2),
    )
    job = _elastic(1900.0, len(ticks), startup_s, 60.0, *phases)
    stage = (first[0], 0.0) if only_one else first
    gangs = _gangs_in(SPOT_A, ticks, stage, (1.0, 1.6))
    expected = Trying(gangs, job, GRID_S).lowest_usd()
    best = hindsight_optimum(job, POLICY, _record({SPOT_A: ticks}), Machines())
    if best is None:
        assert not math.isfinite(expected)
        return
    assert best.low_usd <= expected + 1e-9
    if math.isfinite(expected) and not only_one:
        assert expected <= best.usd + 1e-9
        assert best.low_usd == pytest.approx(best.usd, rel=0.5)


@settings(max_examples=30, deadline=None)
@given(
    changes=st.lists(st.tuples(st.integers(0, 2), st.sampled_from([1.0, 3.0])), min_size=10,
                     max_size=12),
    startup_s=st.sampled_from([0.0, 90.0]),
)  # fmt: skip
def test_capacity_that_goes_within_a_tick(
    changes: list[tuple[int, float]], startup_s: float
) -> None:
    """Event data that change every 150 s: decisions are made every 300 s."""
    half_s = DEFAULT_TICK_S / 2
    job = _elastic(700.0, 1, startup_s, 30.0)
    job = replace(job, deadline_at=job.start_at + timedelta(seconds=half_s * len(changes)))
    history = replace(_record({SPOT_A: changes}, half_s), tick_s=None)
    pairs = list(zip(changes[::2], [*changes[1::2], (2, 1.0)], strict=False))
    gangs = []
    for nodes in (1, 2):
        lives = [DEFAULT_TICK_S if after >= nodes else half_s for _, (after, _) in pairs]
        usd = [
            price * nodes * lived / 3600 if free >= nodes else math.inf
            for ((free, price), _), lived in zip(pairs, lives, strict=True)
        ]
        gangs.append(Gang(SPOT_A, nodes, usd, lives, (1.0, 1.6)[nodes - 1 : nodes], [True]))
    expected = Trying(gangs, job, DEFAULT_TICK_S).lowest_usd()
    best = hindsight_optimum(job, POLICY, history, Machines())
    if best is None:
        assert not math.isfinite(expected)
        return
    assert best.low_usd <= expected + 1e-9
    if math.isfinite(expected):
        assert best.usd >= expected - 1e-9


def test_moving_data_costs_dollars_and_time() -> None:
    """A fetch of the data is $0.02 and 100 s, which still fit into the third tick."""
    near = _job(1400.0, 60.0, 6 * GRID_S)
    job = replace(near, data=DataLocation("s3://b", 1.0, region="aws/home"))

    def far(_: str, __: str) -> Transfer:
        return Transfer(0.02, GIGABITS_PER_GIB / 100, "test")

    lane = [(1, 1.2), (1, 1.2), (1, 1.2), (0, 1.2), (1, 1.2), (1, 1.2)]
    history = _record({SPOT_A: lane})
    here = hindsight_optimum(near, POLICY, history, Machines())
    away = hindsight_optimum(job, POLICY, history, Machines(), far)
    assert here is not None
    assert away is not None
    assert here.usd == pytest.approx(0.6)
    assert away.usd == pytest.approx(0.6 + 0.02)
    assert hindsight_optimum(job, POLICY, history, Machines(), lambda _, __: None) is None


@pytest.mark.parametrize("name", ["greedy_spot", "uniform_progress", "adaptive"])
def test_no_strategy_with_gangs_of_several_sizes_pays_less(name: str) -> None:
    spot = ([(2, 2.0)] * 5 + [(1, 1.0)] * 3 + [(0, 2.0)] * 3) * 8
    history = _record({SPOT_A: spot, SAFE: [(9, 8.0)] * len(spot)})
    job = _elastic(15_000.0, 36, 120.0, 60.0)
    best = hindsight_optimum(job, POLICY, history, Machines())
    paid = replay(
        job, rules(name), history, machines=Machines(), powers=Powers(), hazards=NoHazard()
    )
    assert best is not None
    assert paid.summary.on_time
    assert paid.summary.usd >= best.low_usd - 1e-5
