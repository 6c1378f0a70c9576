"""What a person hears of, and how often."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from costopt.daemon.shared_state import SharedState, TickSnapshot
from costopt.daemon.watch.alert_kinds import AlertKind
from costopt.daemon.watch.notifications import STORM_COUNT, AlertMonitor
from costopt.ledger.job_account import JobAccount
from costopt.ledger.summary import JobState
from tests.support.market_fixtures import T0


def _seen(minute: int = 0, slack_s: float | None = 60.0, **changes: object) -> TickSnapshot:
    now = T0 + timedelta(minutes=minute)
    summary = replace(JobAccount("one").summary(now), **changes)  # type: ignore[arg-type]
    slacks = {} if slack_s is None else {"one": slack_s}
    return TickSnapshot(now, summaries={"one": summary}, slacks=slacks)


def _kinds(board: SharedState) -> list[tuple[str, str]]:
    return [(alert.kind, alert.job) for alert in board.alerts(0)]


def test_a_deadline_at_risk_is_reported_once_for_as_long_as_it_is() -> None:
    board = SharedState(T0)
    watch = AlertMonitor(board)
    for slack_s in (60.0, -10.0, -20.0, 30.0, -5.0):
        watch.look(_seen(slack_s=slack_s))
    assert _kinds(board) == [("deadline", "one"), ("deadline", "one")]
    assert "short of 10 s" in board.alerts(0)[0].message


def test_a_missed_deadline_is_reported_and_a_kept_one_is_not() -> None:
    board = SharedState(T0)
    AlertMonitor(board).look(_seen(slack_s=-5.0, on_time=True, state=JobState.FINISHED))
    assert _kinds(board) == []
    AlertMonitor(board).look(_seen(on_time=False))
    assert "misses its deadline" in board.alerts(0)[0].message


def test_a_guard_that_stops_a_job_is_reported() -> None:
    board = SharedState(T0)
    watch = AlertMonitor(board)
    for said in ("spent $5.00 of $5.00", "spent $5.01 of $5.00"):
        watch.look(replace(_seen(), guarded={"one": said}))
    assert [alert.message for alert in board.alerts(0)] == ["one: spent $5.00 of $5.00"]


def test_each_further_failure_of_a_jobs_nodes_is_reported() -> None:
    board = SharedState(T0)
    watch = AlertMonitor(board)
    for failing in ({}, {"one": "1 failed"}, {"one": "1 failed"}, {"one": "2 failed"}, {}):
        watch.look(replace(_seen(), failing_nodes=failing))
    assert [(a.kind, a.message) for a in board.alerts(0)] == [
        ("nodes", "one: 1 failed"),
        ("nodes", "one: 2 failed"),
    ]


def test_a_failure_of_a_job_is_reported_again_once_it_was_over() -> None:
    board = SharedState(T0)
    watch = AlertMonitor(board)
    for failures in ({"one": "the store refuses"}, {"one": "it still does"}, {}, {"one": "again"}):
        watch.look(replace(_seen(), troubles=failures))
    assert [a.message for a in board.alerts(0)] == ["one: the store refuses", "one: again"]
    assert {a.kind for a in board.alerts(0)} == {"trouble"}


def test_many_interruptions_within_an_hour_are_a_storm() -> None:
    board = SharedState(T0)
    watch = AlertMonitor(board)
    watch.look(_seen(0, interruptions=100))
    watch.look(_seen(10, interruptions=100 + STORM_COUNT - 1))
    assert _kinds(board) == []
    watch.look(_seen(20, interruptions=100 + STORM_COUNT))
    watch.look(_seen(30, interruptions=100 + STORM_COUNT))
    assert _kinds(board) == [("interruptions", "")]
    watch.look(_seen(90, interruptions=100 + STORM_COUNT))
    watch.look(_seen(91, interruptions=100 + 2 * STORM_COUNT))
    assert len(board.alerts(1)) == 1


def test_alerts_are_numbered() -> None:
    board = SharedState(T0)
    for number in range(3):
        board.alert(T0, AlertKind.FAILED, f"job{number}", "failed")
    assert [alert.seq for alert in board.alerts(1)] == [2, 3]


def test_a_closed_job_is_reported_once_and_then_looked_at_no_more() -> None:
    board = SharedState(T0)
    watch = AlertMonitor(board)
    failed = _seen(on_time=False, state=JobState.FAILED, interruptions=STORM_COUNT)
    for closed in (False, True, True, False, True):
        watch.look(replace(failed, closed=frozenset({"one"} if closed else ())))
    assert _kinds(board) == 2 * [("deadline", "one"), ("failed", "one")], (
        "again once it failed again"
    )
