"""Whatever the market does, the adaptive strategy is in time and never dearer than it must be."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costopt.backtesting.replay import replay
from costopt.domain.estimate import Series
from costopt.domain.events import NodeEnded, NodeLaunched
from costopt.domain.history import MarketHistory
from costopt.domain.job import Phase
from costopt.domain.market import Pool
from costopt.domain.policy import CarbonSignal, Objective
from costopt.domain.ports import RecordedEvent
from costopt.domain.throughput import Throughput, ThroughputSample
from tests.properties.test_shield import GAP_S, traces
from tests.support.cant_be_late import (
    ON_DEMAND_USD,
    NoHazard,
    OneMachine,
    OnePower,
    job,
    market,
    policy,
)

TASK_H = 6.0


@settings(max_examples=25, deadline=None)
@given(
    trace=traces,
    other=traces,
    slack_h=st.floats(0.5, 6.0),
    overhead_h=st.sampled_from([0.02, 0.1, 0.3]),
    nodes=st.sampled_from([1, 2]),
)
def test_it_is_in_time_on_any_market(
    trace: list[int], other: list[int], slack_h: float, overhead_h: float, nodes: int
) -> None:
    """A gang of two has one node in each of two zones, or is on demand."""
    deadline_h = TASK_H + overhead_h + GAP_S / 3600 + slack_h
    ticks = int(3.1 * deadline_h * 3600 / GAP_S)
    here = market((trace * 100)[:ticks], GAP_S)
    there = market((other * 100)[:ticks], GAP_S, zone="us-west-2b")
    task = job(deadline_h, overhead_h, TASK_H)
    task = replace(
        task,
        resources=replace(task.resources, min_nodes=nodes, max_nodes=nodes, zone_traffic_gib=0.0),
        phases=(Phase("all", 1.0, nodes, nodes),),
        throughput=Throughput((ThroughputSample("V100", nodes, 1.0),)),
    )
    run = replay(
        task,
        policy("adaptive"),
        MarketHistory("two", {**here.pools, **there.pools}, GAP_S, "test"),
        machines=OneMachine(),
        powers=OnePower(),
        hazards=NoHazard(),
    )
    assert run.strategy_failure is None
    assert run.summary.on_time is True
    assert run.summary.done_units == pytest.approx(task.work.amount)
    assert run.summary.usd < nodes * ON_DEMAND_USD * (deadline_h + 2 * GAP_S / 3600)
    assert max(_living(run.events)) <= 2 * nodes


def _living(events: Iterable[RecordedEvent]) -> Iterator[int]:
    """How many nodes live after each event: at most a gang that comes and the one that leaves."""
    living = set[str]()
    for recorded in events:
        match recorded.event:
            case NodeLaunched(node_id=node_id):
                living.add(node_id)
            case NodeEnded(node_id=node_id):
                living.discard(node_id)
        yield len(living)


@settings(max_examples=25, deadline=None)
@given(
    trace=traces,
    slack_h=st.floats(0.5, 6.0),
    overhead_h=st.sampled_from([0.02, 0.1, 0.3]),
    share=st.floats(0.1, 0.9),
    speeds=st.tuples(*[st.sampled_from([0.5, 1.0, 3.0])] * 2),
    may_pause=st.tuples(st.booleans(), st.booleans()),
    evaluation_s=st.sampled_from([0.0, 60.0]),
)
def test_it_is_in_time_whatever_the_phases(
    trace: list[int],
    slack_h: float,
    overhead_h: float,
    share: float,
    speeds: tuple[float, float],
    may_pause: tuple[bool, bool],
    evaluation_s: float,
) -> None:
    """Two phases with speeds of their own, which may pause or not, with and without evaluations."""
    shares = (share, 1.0 - share)
    task = job(0.0, overhead_h, TASK_H)
    task = replace(
        task,
        phases=tuple(
            Phase(
                f"phase {place}",
                shares[place],
                1,
                1,
                may_pause=may_pause[place],
                throughput=Throughput((ThroughputSample("V100", 1, speeds[place]),)),
                evaluate_every=600.0 if evaluation_s else None,
                evaluation_s=evaluation_s,
            )
            for place in (0, 1)
        ),
    )
    pauses = 1 + max(speeds) * evaluation_s / 600
    work_h = TASK_H * sum(s / v for s, v in zip(shares, speeds, strict=True)) * pauses
    deadline_h = work_h + overhead_h + GAP_S / 3600 + slack_h
    task = replace(task, deadline_at=task.start_at + timedelta(hours=deadline_h))
    run = replay(
        task,
        policy("adaptive"),
        market((trace * 200)[: int(3.1 * deadline_h * 3600 / GAP_S)], GAP_S),
        machines=OneMachine(),
        powers=OnePower(),
        hazards=NoHazard(),
    )
    assert run.strategy_failure is None
    assert run.summary.on_time is True
    assert run.summary.done_units == pytest.approx(task.work.amount)


class Claimed:
    """Forecasts that say the same at every look, true or not."""

    def __init__(self, hourly: list[float]) -> None:
        self.hourly = hourly

    def prices(
        self, pools: Collection[Pool], now: datetime, until: datetime
    ) -> Mapping[Pool, Series]:
        return dict.fromkeys(pools, self._from(now))

    def carbon(
        self,
        regions: Collection[str],
        now: datetime,
        until: datetime,
        carbon_signal: CarbonSignal,
    ) -> Mapping[str, Series]:
        return dict.fromkeys(regions, self._from(now))

    def _from(self, now: datetime) -> Series:
        at = tuple(now + timedelta(hours=hour) for hour in range(len(self.hourly)))
        return Series(at, tuple(self.hourly), "claimed")


@settings(max_examples=25, deadline=None)
@given(
    trace=traces,
    slack_h=st.floats(0.5, 12.0),
    hourly=st.lists(st.sampled_from([0.01, 1.0, 50.0, 900.0]), min_size=1, max_size=20),
)
def test_it_is_in_time_whatever_is_forecast(
    trace: list[int], slack_h: float, hourly: list[float]
) -> None:
    deadline_h = TASK_H + 0.1 + GAP_S / 3600 + slack_h
    weights = Objective(usd=1.0, usd_per_tonne_co2e=1000.0)
    run = replay(
        job(deadline_h, 0.1, TASK_H),
        replace(policy("adaptive"), objective=weights),
        market((trace * 200)[: int(3.1 * deadline_h * 3600 / GAP_S)], GAP_S),
        machines=OneMachine(),
        powers=OnePower(),
        hazards=NoHazard(),
        forecasts=Claimed(hourly),
    )
    assert run.strategy_failure is None
    assert run.summary.on_time is True


def test_without_spot_it_costs_what_on_demand_does() -> None:
    costs = [
        replay(
            job(12, 0.1, TASK_H),
            policy(name),
            market([0] * 300, GAP_S),
            machines=OneMachine(),
            powers=OnePower(),
            hazards=NoHazard(),
        ).summary.usd
        for name in ("adaptive", "on_demand")
    ]
    assert costs[0] == pytest.approx(costs[1])
