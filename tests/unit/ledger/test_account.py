"""The folds: what a job cost, consumed and did, in figures computed by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from costopt.domain.errors import LedgerError
from costopt.domain.events import (
    CheckpointCommitted,
    DecisionMade,
    Event,
    GangFormed,
    JobFailed,
    JobFinished,
    JobSubmitted,
    LaunchFailed,
    LaunchIntended,
    NodeEnded,
    NodeLaunched,
    NodeMeasured,
    NodeReturned,
    PowerLimitReported,
    PriceChanged,
    ProgressReported,
    RunStopped,
    TrainingStarted,
    TrainingStopped,
    WorkLost,
)
from costopt.domain.fleet import EndCause
from costopt.ledger.base import MemoryLedger
from costopt.ledger.job_account import JobAccount, accounts
from costopt.ledger.summary import JobState
from tests.support.known_figure import known
from tests.support.sample_run import (
    DEADLINE_AT,
    SPOT_A,
    UNINTERRUPTIBLE,
    finished_at,
    sample_events,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(hours: float) -> datetime:
    return START + timedelta(hours=hours)


def account(events: Iterable[Event]) -> JobAccount:
    folded = JobAccount("job")
    for event in events:
        folded.apply(event)
    return folded


def submitted(**changes: object) -> JobSubmitted:
    fields: dict[str, object] = {
        "at": START,
        "job": "job",
        "work_units": 1000.0,
        "unit": "steps",
        "start_at": START,
        "deadline_at": at(10),
        "policy": "cheapest",
        "strategy": "milp",
        "tenant": "default",
        "baseline_pool": UNINTERRUPTIBLE,
        "baseline_usd_micros": 40_000_000,
        "baseline_wh": 8000.0,
        "baseline_startup_usd_micros": 0,
        "baseline_startup_wh": 0.0,
    }
    return JobSubmitted(**(fields | changes))  # type: ignore[arg-type]


def launched(
    node_id: str = "n1",
    hours: float = 0,
    *,
    pool: str = SPOT_A,
    price: int = 3_600_000,
    key: str = "k1",
    gco2e: float | None = 500.0,
) -> NodeLaunched:
    return NodeLaunched(
        at=at(hours),
        job="job",
        key=key,
        node_id=node_id,
        pool=pool,
        launched_at=at(hours),
        micros_per_hour=price,
        idle_w=100.0,
        busy_w=1000.0,
        pue=1.5,
        gco2e_per_kwh=gco2e,
        energy_basis="modelled",
    )


def ended(
    node_id: str, hours: float, cause: EndCause = EndCause.RELEASED, seen: float | None = None
) -> NodeEnded:
    return NodeEnded(
        at=at(hours if seen is None else seen),
        job="job",
        node_id=node_id,
        pool=SPOT_A,
        ended_at=at(hours),
        cause=cause,
    )


def gang(hours: float, generation: int, *node_ids: str) -> GangFormed:
    return GangFormed(
        at=at(hours),
        job="job",
        generation=generation,
        node_ids=node_ids,
        checkpoint_interval_s=600.0,
    )


def trains(hours: float, generation: int, units: float = 0.0) -> TrainingStarted:
    return TrainingStarted(at=at(hours), job="job", generation=generation, units=units)


def stops(hours: float, generation: int, units: float) -> TrainingStopped:
    return TrainingStopped(
        at=at(hours), job="job", generation=generation, units=units, reason="stop"
    )


def priced(hours: float, micros_per_hour: int, pool: str = SPOT_A) -> PriceChanged:
    return PriceChanged(at=at(hours), job="job", pool=pool, micros_per_hour=micros_per_hour)


def intended(nodes: int = 1, key: str = "k1") -> LaunchIntended:
    return LaunchIntended(
        at=START, job="job", key=key, pool=SPOT_A, nodes=nodes, planned_micros_per_hour=1
    )


def test_a_node_costs_from_launch_to_end_and_no_longer() -> None:
    folded = account([launched(), ended("n1", 2)])
    assert folded.summary(at(1)).usd_micros == 7_200_000
    assert folded.summary(at(9)).usd_micros == 7_200_000
    assert folded.summary(at(9)).node_seconds == 7200


def test_a_living_node_costs_until_now() -> None:
    folded = account([launched()])
    assert folded.summary(at(0)).usd_micros == 0
    assert folded.summary(at(1.5)).usd_micros == 5_400_000


def test_the_division_is_taken_once_per_price_segment() -> None:
    third_s = timedelta(milliseconds=333)
    folded = account([launched(price=10_000_001)])
    folded.apply(
        PriceChanged(at=START + third_s, job="job", pool=SPOT_A, micros_per_hour=10_000_001)
    )
    spent = folded.summary(START + 2 * third_s).usd_micros
    assert spent == 2 * (10_000_001 * 333 // 3_600_000)


def test_a_price_change_counts_from_its_instant_for_the_nodes_of_its_pool() -> None:
    folded = account(
        [
            launched("n1"),
            launched("n2", pool=UNINTERRUPTIBLE, key="k2"),
            ended("n1", 1),
            launched("n3", 1, key="k3"),
            priced(2, 7_200_000),
        ]
    )
    cost = {row.node_id: row.usd_micros for row in folded.intervals(at(3))}
    assert cost == {"n1": 3_600_000, "n2": 10_800_000, "n3": 3_600_000 + 7_200_000}


def test_an_end_learned_after_a_price_change_is_charged_at_the_old_price() -> None:
    folded = account([launched(), priced(2, 9_000_000), ended("n1", 1, seen=3)])
    assert folded.summary(at(3)).usd_micros == 3_600_000


def test_a_price_change_before_a_launch_is_not_the_nodes() -> None:
    folded = account([launched(hours=2), priced(1, 9_000_000)])
    assert folded.summary(at(3)).usd_micros == 3_600_000


def test_a_node_recorded_after_a_price_change_has_it_from_then_on() -> None:
    late = account([priced(1, 7_200_000), launched()])
    assert late.summary(at(2)).usd_micros == 3_600_000 + 7_200_000


def test_a_node_draws_busy_power_only_while_its_gang_trains() -> None:
    folded = account(
        [
            launched("n1"),
            launched("n2"),
            gang(0.5, 1, "n1"),
            trains(1, 1),
            stops(3, 1, 100.0),
        ]
    )
    summary = folded.summary(at(4))
    assert summary.busy_wh == pytest.approx(2 * 1000 * 1.5)
    assert summary.idle_wh == pytest.approx((2 + 4) * 100 * 1.5)
    assert summary.gco2e == pytest.approx(known(summary.kwh) * 500)


def limited(hours: float, cap_w: float | None, busy_w: float, node_id: str = "n1") -> Event:
    return PowerLimitReported(
        at=at(hours), job="job", node_id=node_id, cap_w=cap_w, busy_w=busy_w, message="set"
    )


def test_a_node_of_a_gang_draws_less_by_what_it_waits() -> None:
    waiting = replace(launched(), communication_share=0.4)
    folded = account(
        [
            waiting,
            replace(gang(0, 1, "n1"), scaling_efficiency=0.5),
            trains(0, 1),
            limited(1, 200.0, 600.0),
            replace(gang(2, 2, "n1"), scaling_efficiency=1.0),
            trains(2, 2),
            gang(3, 3, "n1"),
            trains(3, 3),
        ]
    )
    assert folded.summary(at(1)).busy_wh == pytest.approx(800 * 1.5)
    assert folded.summary(at(2)).busy_wh == pytest.approx((800 + 480) * 1.5)
    assert folded.summary(at(4)).busy_wh == pytest.approx((800 + 480 + 600 + 600) * 1.5)


def test_a_power_limit_changes_what_a_node_draws_while_it_trains() -> None:
    folded = account(
        [
            launched(),
            gang(0, 1, "n1"),
            limited(0.5, 250.0, 800.0),
            trains(1, 1),
            limited(2, 200.0, 600.0),
            stops(3, 1, 100.0),
            limited(3.5, None, 1000.0),
            gang(4, 2, "n1"),
            trains(4, 2),
        ]
    )
    assert folded.summary(at(2)).busy_wh == pytest.approx(800 * 1.5)
    assert folded.summary(at(5)).busy_wh == pytest.approx((800 + 600 + 1000) * 1.5)
    assert folded.summary(at(5)).idle_wh == pytest.approx(2 * 100 * 1.5)
    (row,) = folded.intervals(at(4.5))
    assert row.busy_wh == pytest.approx((800 + 600 + 500) * 1.5)


def measured(
    start: float, end: float, wh: float | None, node_id: str = "n1", **figures: float
) -> NodeMeasured:
    return NodeMeasured(
        at=at(end),
        job="job",
        node_id=node_id,
        from_at=at(start),
        until_at=at(end),
        wh=wh,
        parts=("gpu",),
        **figures,
    )


def test_what_was_measured_counts_in_place_of_the_model() -> None:
    events = [launched(), gang(0, 1, "n1"), trains(1, 1), measured(0, 2, 880.0), stops(3, 1, 9.0)]
    summary = account(events).summary(at(4))
    assert summary.measured_wh == pytest.approx(880 * 1.5)
    assert summary.busy_wh == pytest.approx((800 + 1000) * 1.5)
    assert summary.idle_wh == pytest.approx((80 + 100) * 1.5)
    assert summary.gco2e == pytest.approx(known(summary.kwh) * 500)
    assert summary.energy_basis == "44% measured, the rest modelled"
    (row,) = account(events).intervals(at(4))
    assert row.energy_basis == summary.energy_basis
    assert row.wh == pytest.approx(summary.wh)


def test_a_later_measurement_holds_the_earlier_one_and_a_new_agent_begins_at_zero() -> None:
    events = [launched(), measured(0, 1, 30.0), measured(0, 2, 70.0), measured(2, 3, 50.0)]
    assert account(events).summary(at(3)).wh == pytest.approx((70 + 50) * 1.5)
    assert account(events).summary(at(3)).energy_basis == "measured"
    assert account(events).summary(at(1)).wh == pytest.approx(35 * 1.5), "shared out over time"


def test_measured_energy_of_a_dead_node_stays_and_what_comes_late_does_not_count() -> None:
    events = [launched(), measured(0, 1, 30.0), ended("n1", 2), measured(0, 2, 999.0)]
    summary = account(events).summary(at(5))
    assert summary.wh == pytest.approx((30 + 100) * 1.5)
    assert summary.measured_wh == pytest.approx(30 * 1.5)


def test_figures_without_energy_change_no_energy() -> None:
    summary = account([launched(), measured(0, 1, None, goodput=0.9)]).summary(at(1))
    assert summary.wh == pytest.approx(150)
    assert summary.energy_basis == "modelled"


def test_a_node_that_dies_in_training_is_busy_until_its_end() -> None:
    late_stop = [launched(), gang(0, 1, "n1"), trains(0, 1), stops(2, 1, 9.0), ended("n1", 1)]
    early_stop = [launched(), gang(0, 1, "n1"), trains(0, 1), ended("n1", 1), stops(2, 1, 9.0)]
    for events in (late_stop, early_stop):
        assert account(events).summary(at(3)).busy_wh == pytest.approx(1500)


@pytest.mark.parametrize("then", ["nothing", "it comes back", "its end is reported"])
def test_what_is_learned_of_a_lost_node_is_in_its_row_and_in_the_sum(then: str) -> None:
    folded = account(
        [
            launched(),
            gang(0, 1, "n1"),
            trains(0, 1),
            ended("n1", 3, EndCause.LOST),
            stops(1, 1, 9.0),
        ]
    )
    if then == "it comes back":
        folded.apply(NodeReturned(at=at(4), job="job", node_id="n1", pool=SPOT_A))
    elif then == "its end is reported":
        folded.apply(ended("n1", 2, EndCause.INTERRUPTED, seen=4))
    (row,), reported = folded.intervals(at(4)), folded.summary(at(4))
    assert row.busy_wh == 1500.0
    assert (reported.busy_wh, reported.idle_wh) == (row.busy_wh, row.idle_wh)
    assert reported.usd_micros == row.usd_micros


def test_a_new_gang_ends_the_training_of_the_one_before() -> None:
    folded = account([launched(), gang(0, 1, "n1"), trains(0, 1), gang(1, 2, "n1")])
    assert folded.summary(at(2)).busy_wh == pytest.approx(1500)
    assert folded.generation == 2


def test_unknown_carbon_intensity_of_one_node_makes_the_sum_unknown() -> None:
    folded = account([launched("n1"), launched("n2", gco2e=None)])
    assert folded.summary(at(1)).gco2e is None


def test_dollars_are_split_by_capacity_type() -> None:
    folded = account([launched("n1"), launched("n2", pool=UNINTERRUPTIBLE, price=9_000_000)])
    summary = folded.summary(at(1))
    assert (summary.spot_usd_micros, summary.on_demand_usd_micros) == (3_600_000, 9_000_000)


def test_launches_are_counted_once_however_many_nodes_they_bring() -> None:
    failed = LaunchFailed(at=START, job="job", key="k2", pool=SPOT_A, error="E", message="none")
    folded = account([intended(nodes=2), launched("n1"), launched("n2"), failed])
    assert folded.summary(START).launches == 1
    assert folded.summary(START).failed_launches == 1


def test_live_nodes_are_those_without_an_end() -> None:
    folded = account([launched("n1"), launched("n2"), ended("n1", 1, EndCause.INTERRUPTED)])
    assert list(folded.live_nodes()) == ["n2"]
    assert folded.summary(at(1)).interruptions == 1
    folded.apply(ended("n1", 1, EndCause.INTERRUPTED))
    assert folded.summary(at(1)).interruptions == 1


@pytest.mark.parametrize(
    ("cause", "interruptions"), [(EndCause.INTERRUPTED, 1), (EndCause.RELEASED, 0)]
)
def test_the_correction_of_an_estimated_end_replaces_what_it_counted_as(
    cause: EndCause, interruptions: int
) -> None:
    estimate = replace(ended("n1", 1, EndCause.INTERRUPTED), estimated=True)
    folded = account([launched("n1"), estimate, ended("n1", 0.5, cause)])
    summary = folded.summary(at(1))
    assert (summary.interruptions, summary.usd_micros) == (interruptions, 1_800_000)


def test_lost_work_falls_back_to_what_is_saved() -> None:
    folded = account(
        [
            submitted(),
            ProgressReported(at=at(1), job="job", done_units=100.0, saved_units=80.0),
            WorkLost(at=at(1), job="job", units=20.0, cause="n1"),
        ]
    )
    summary = folded.summary(at(1))
    assert (summary.done_units, summary.saved_units, summary.lost_units) == (80, 80, 20)
    assert [p.done_units for p in folded.curves(at(1)).progress] == [0, 100, 80]


def test_a_checkpoint_never_takes_work_back() -> None:
    folded = account(
        [
            ProgressReported(at=at(1), job="job", done_units=100.0, saved_units=80.0),
            CheckpointCommitted(
                at=at(1), job="job", units=40.0, uri="u", size_bytes=None, save_s=None
            ),
        ]
    )
    assert folded.summary(at(1)).saved_units == 80


def test_on_time_is_known_only_when_it_is_decided() -> None:
    running = account([submitted(), launched()])
    assert running.summary(at(9)).on_time is None
    assert running.summary(at(11)).on_time is False
    done = JobFinished(at=at(10), job="job", units=1000.0)
    assert account([submitted(), done]).summary(at(20)).on_time is True
    assert account([submitted(), done]).summary(at(20)).margin_s == 0
    failed = JobFailed(at=at(1), job="job", message="exit 1")
    assert account([submitted(), failed]).summary(at(2)).on_time is False


def test_savings_compare_with_the_baseline_of_the_work_done() -> None:
    half = ProgressReported(at=at(1), job="job", done_units=500.0, saved_units=500.0)
    summary = account([submitted(), launched(), half]).summary(at(1))
    assert summary.saved_usd_micros == 20_000_000 - 3_600_000
    assert summary.saved_usd_share == pytest.approx(0.82)
    assert summary.saved_wh == pytest.approx(4000 - 150)


def test_without_a_baseline_savings_are_unknown() -> None:
    summary = account([submitted(baseline_usd_micros=None, baseline_wh=None)]).summary(at(1))
    assert summary.saved_usd_micros is None
    assert summary.saved_wh_share is None


def test_the_state_follows_the_events() -> None:
    folded = account([submitted()])
    seen = [folded.summary(START).state]
    decided = DecisionMade(at=at(4), job="job", decision_id="d", targets=(), reason="resume")
    for event in (
        launched(),
        gang(0, 1, "n1"),
        trains(1, 1),
        stops(2, 1, 10.0),
        RunStopped(at=at(3), job="job", reason="Ctrl-C"),
        decided,
        JobFinished(at=at(5), job="job", units=1000.0),
    ):
        folded.apply(event)
        seen.append(folded.summary(at(5)).state)
    assert seen == [
        JobState.WAITING,
        JobState.STARTING,
        JobState.STARTING,
        JobState.TRAINING,
        JobState.STARTING,
        JobState.STOPPED,
        JobState.STARTING,
        JobState.FINISHED,
    ]


def test_a_switch_is_a_gang_in_other_pools() -> None:
    events = [
        launched("n1"),
        launched("n2"),
        launched("n3", pool=UNINTERRUPTIBLE),
        gang(0, 1, "n1"),
        gang(1, 2, "n2"),
        gang(2, 3, "n3"),
    ]
    assert account(events).summary(at(3)).pool_switches == 1


def test_spend_between_two_instants_is_what_ran_then() -> None:
    folded = account([launched(), ended("n1", 2)])
    assert folded.usd_micros_between(at(1), at(5)) == 3_600_000
    assert folded.usd_micros_between(at(-5), at(-4)) == 0


@pytest.mark.parametrize("damage", ["pool", "job"])
def test_an_event_that_cannot_be_folded_is_refused(damage: str) -> None:
    folded = JobAccount("job" if damage == "pool" else "other")
    with pytest.raises(LedgerError, match=r"no pool|of job"):
        folded.apply(launched(pool="nonsense"))


def test_the_sample_run_adds_up() -> None:
    ledger = MemoryLedger()
    ledger.append(*sample_events("a"), *sample_events("b"))
    folded = accounts(ledger)["a"]
    now = finished_at() + timedelta(minutes=3)
    summary, rows = folded.summary(now), folded.intervals(now)
    assert summary.usd_micros == sum(row.usd_micros for row in rows)
    assert summary.wh == pytest.approx(sum(known(row.wh) for row in rows))
    assert summary.usd_micros == summary.spot_usd_micros + summary.on_demand_usd_micros
    last = folded.curves(now).spend[-1]
    assert last.usd_micros == summary.usd_micros
    assert last.wh == pytest.approx(summary.wh)
    assert (summary.interruptions, summary.launches, summary.pool_switches) == (3, 4, 3)
    assert summary.margin_s == (DEADLINE_AT - finished_at()).total_seconds()
    assert list(accounts(ledger)) == ["a", "b"]
    assert accounts(ledger)["b"].summary(now).usd_micros == summary.usd_micros
