"""Figures and tables as text."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from costopt.backtesting.ranking import PolicySummary
from costopt.domain.events import EVENT_TYPES, Event, JobFailed, JobSubmitted
from costopt.ledger.job_account import JobAccount
from costopt.ledger.run_view import RunView
from costopt.render.table import Table
from costopt.views import event as event_row
from costopt.views.backtest import BACKTEST_COLUMNS, backtest_table
from costopt.views.headline import deadline_sentence
from costopt.views.job import job_table, job_tiles
from tests.support.sample_run import DEADLINE_AT, finished_at, sample_events

ROW = PolicySummary(
    group="all",
    policy="milp",
    runs=30,
    mean_usd=288.4,
    low_usd=280.0,
    high_usd=297.5,
    p50_usd=279.75,
    p95_usd=360.5,
    kwh=81.2,
    gco2e=None,
    hourly_carbon_share=None,
    embodied_gco2e=None,
    sci_gco2e_per_unit=None,
    finish_s=19800,
    misses=1,
    interruptions=2.8,
    switches=2.1,
    lost_s=1400,
    hindsight_ratio=None,
    hindsight_low=None,
    hindsight_high=None,
)


def texts(table: Table) -> list[tuple[str, ...]]:
    return [tuple(column.text(row) for column in table.shown_columns) for row in table.rows]


def folded(events: tuple[Event, ...]) -> JobAccount:
    account = JobAccount(events[0].job)
    for event in events:
        account.apply(event)
    return account


def test_the_run_table_names_value_and_basis_of_every_figure() -> None:
    table = job_table({"summary": folded(sample_events()).summary(finished_at())})
    figures = {name.strip(): (value, basis) for name, value, basis in texts(table)}
    assert figures["state"] == ("finished 29 min before its deadline", "measured")
    assert figures["spent"][0].startswith("$35")
    assert figures["against on-demand"] == (
        "32 % below $519.60 for the same work",
        "modelled, at the declared speed",
    )
    assert figures["energy"][1] == "modelled"
    assert figures["work done"][0] == "33,000 steps of 33,000 (100 %)"
    assert figures["launches"][0] == "4 (1 refused)"
    assert all(value and basis for value, basis in figures.values())


def test_dollars_of_the_simulator_are_not_measured() -> None:
    events: tuple[Any, ...] = sample_events()
    events = tuple(
        replace(event, node_id=f"sim-{event.node_id}") if hasattr(event, "node_id") else event
        for event in events
    )
    for given, basis in ((sample_events(), "measured"), (events, "simulated")):
        table = job_table({"summary": folded(given).summary(finished_at())})
        figures = {name.strip(): found for name, _, found in texts(table)}
        assert {figures[each] for each in ("spent", "on spot", "on demand")} == {basis}
        assert job_tiles(RunView.of(given, finished_at()))[0].basis == basis


def test_the_verdict_tells_late_from_failed_from_running() -> None:
    events = sample_events()
    running = folded(events[:20])
    assert "left until its deadline" in deadline_sentence(running.summary(events[19].at))
    past = DEADLINE_AT + timedelta(hours=1)
    assert deadline_sentence(running.summary(past)) == "unfinished, 1 h past its deadline"
    failed = JobFailed(at=events[19].at, job=events[0].job, message="exit 1")
    assert "failed" in deadline_sentence(folded((*events[:20], failed)).summary(past))
    (submitted,) = (e for e in events if isinstance(e, JobSubmitted))
    early = replace(submitted, deadline_at=finished_at() - timedelta(minutes=5))
    late = folded((early, *events[1:]))
    assert deadline_sentence(late.summary(past)) == "finished 5 min after its deadline"
    assert deadline_sentence(JobAccount("j").summary(past)) == "not submitted yet"


def test_every_kind_of_event_has_words() -> None:
    assert set(event_row._WORDS) == set(EVENT_TYPES)
    rows = [event_row.describe_event(event) for event in sample_events()]
    assert ("Work lost", "1,680 units: i-0a2 interrupted") in [(r.what, r.detail) for r in rows]
    assert all(row.what and row.detail for row in rows)
    named = [(row.what, row.detail) for row in event_row.describe_events(sample_events())]
    assert ("Work lost", "1,680 steps: i-0a2 interrupted") in named
    assert not [detail for _, detail in named if " units" in detail]
    later = [event for event in sample_events() if not isinstance(event, JobSubmitted)]
    asked = event_row.describe_events(later, {sample_events()[0].job: "steps"})
    assert "1,680 steps: i-0a2 interrupted" in [row.detail for row in asked]


def test_a_backtest_row_fills_every_column() -> None:
    table = backtest_table([ROW])
    assert texts(table) == [
        (
            "milp", "$288.40", "[$280.00, $297.50]", "$279.75", "$360.50", "81.2", "–", "–",
            "–", "–", "5.5 h", "1 of 30", "2.8", "2.1", "23 min 20 s", "–", "–",
        )
    ]  # fmt: skip
    never = texts(backtest_table([replace(ROW, misses=0)]))
    assert "0 of 30 (<9.6 %)" in never[0]
    grouped = backtest_table([ROW, replace(ROW, group="8 h")])
    assert grouped.columns == BACKTEST_COLUMNS
    assert [row[0] for row in texts(grouped)] == ["all", "8 h"]
