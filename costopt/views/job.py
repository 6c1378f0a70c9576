"""A job: its columns, its details, its figures, and those in large type.

A row is what the daemon's API answers, or the JobStatus that it is made of; of a ledger's job it
holds only the ``summary``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from itertools import chain
from typing import Any
from urllib.parse import quote

from costopt.domain.cached_data import GIGABITS_PER_GIB
from costopt.domain.control import DesiredState
from costopt.domain.events import DecisionMade
from costopt.formatting import (
    UNKNOWN_TEXT,
    gco2e_text,
    kwh_text,
    minute_text,
    number_text,
    percent_text,
    pluralize,
    pools_text,
    relative_to_baseline,
    sci_text,
    second_text,
    seconds_text,
    usd_micros_text,
    usd_text,
    wh_text,
    whole_percent_text,
    work_text,
)
from costopt.ledger.job_query import JobRow
from costopt.ledger.run_view import RunView
from costopt.ledger.summary import JobState, JobSummary
from costopt.render.page import Metric
from costopt.render.table import Column, OutputFormat, Table, pick, value_at
from costopt.views.headline import cost_sentence, deadline_sentence, deadline_verdict

SCHEDULED = "scheduled"
"""The state of a recurring job, whose occurrences are jobs of their own."""
_STATE_TONES = {JobState.FINISHED: "good", JobState.TRAINING: "good", JobState.FAILED: "bad"}

_ON_TIME_TONES = {None: "plain", True: "good", False: "bad"}


def job_path(name: str) -> str:
    """Return the path of a job's page."""
    return f"/jobs/{quote(name, safe='')}"


def slack_text(slack_s: float) -> str:
    """Return slack as a duration; of negative slack how much is short."""
    return f"{seconds_text(-slack_s)} short" if slack_s < 0 else seconds_text(slack_s)


def slack_tone(row: Any) -> str:
    """Return how the slack of a job or decision stands out."""
    return "bad" if (value_at(row, "slack_s") or 0.0) < 0 else "plain"


JOB_COLUMNS = (
    Column("job", "Job", value="summary.job", link=job_path),
    Column(
        "state", "State",
        tone=lambda job: _STATE_TONES.get(value_at(job, "summary.state"), "plain"),
        value=lambda job: SCHEDULED if value_at(job, "next_at") else value_at(job, "summary.state"),
    ),
    Column(
        "desired_state", "Desired", lambda state: "" if state == DesiredState.RUN else state,
        value="submission.desired_state", unknown="", tone="note",
    ),
    Column("next_at", "Next", minute_text, unknown=""),
    Column("priority", "Priority", right=True, rank=4, value="submission.priority", unknown=""),
    Column("tenant", "Tenant", rank=3, value="submission.tenant", unknown=""),
    Column("nodes", "Nodes", right=True, rank=1, value="summary.nodes_alive"),
    Column("done_share", "Done", percent_text, right=True, value="summary.done_share"),
    Column("usd", "Spent", usd_text, right=True, value="summary.usd"),
    Column("kwh", "Energy", kwh_text, right=True, rank=5, value="summary.kwh"),
    Column("interruptions", "Interruptions", right=True, rank=5, value="summary.interruptions"),
    Column("slack_s", "Slack", slack_text, right=True, rank=2, unknown="", tone=slack_tone),
    Column("on_time", "In time", value="summary.on_time",
           tone=lambda job: _ON_TIME_TONES[value_at(job, "summary.on_time")]),
    Column("deadline_at", "Deadline", minute_text, rank=1, value="summary.deadline_at"),
    Column(
        "verdict", "Verdict", fold_at=60,
        value=lambda job: deadline_sentence(value_at(job, "summary")),
    ),
    Column("blocked_by", "Blocked by", fold_at=40, unknown=""),
)  # fmt: skip
"""Columns of a list of jobs."""

DETAILS = (
    *pick(JOB_COLUMNS, "desired_state next_at blocked_by tenant priority"),
    Column("schedule", "Occurrence of", value="submission.schedule", unknown=""),
    Column("failure", "Failed because", value="summary.failure"),
    Column(
        "submitted", "Submitted",
        value=lambda job: value_at(job, "submission.submitted_by") and (
            f"{second_text(value_at(job, 'submission.submitted_at'))} by "
            f"{value_at(job, 'submission.submitted_by')}"
        ),
    ),
    Column("policy", "Policy", unknown=UNKNOWN_TEXT, value="summary.policy"),
    Column("strategy", "Strategy", unknown=UNKNOWN_TEXT, value="summary.strategy"),
    Column("deadline_at", "Deadline", second_text, value="summary.deadline_at"),
    *pick(JOB_COLUMNS, "slack_s"),
    Column(
        "baseline", "On-demand baseline",
        value=lambda job: f"{usd_micros_text(value_at(job, 'summary.baseline_usd_micros'))} for the"
        f" whole job {value_at(job, 'summary.baseline_basis')}",
    ),
    Column("decision_id", "Last decision", value="decision.decision_id", unknown=""),
    Column("reason", "Because", pools_text, value="decision.reason", unknown=""),
    Column("workdir", "Folder", value="submission.workdir", unknown=""),
)  # fmt: skip
"""What there is to say of one job, beside its figures."""


def _to_come_usd(job: Any) -> float | None:
    """Return what is expected until the end: by the forecast, before one was made by the last
    decision unless dollars were spent since."""
    total_usd: float | None = value_at(job, "forecast.usd")
    spent_usd: float = value_at(job, "summary.usd")
    decision = value_at(job, "decision")
    if total_usd is not None:
        return max(0.0, total_usd - spent_usd)
    if not isinstance(decision, DecisionMade) or decision.at < job.summary.now:
        return None
    return decision.expected_usd()


def _total_text(job: Any) -> str:
    total, high = value_at(job, "forecast.usd"), value_at(job, "forecast.usd_p95")
    if total is not None:
        return f"{usd_text(total)} (P95 {usd_text(high)})"
    to_come = _to_come_usd(job)
    return usd_text(None if to_come is None else value_at(job, "summary.usd") + to_come)


FORECAST = (
    Column(
        "finish_p50_at", "Expected finish", unknown="",
        value=lambda job: value_at(job, "forecast") and (
            f"{second_text(value_at(job, 'forecast.finish_p50_at'))} "
            f"(P95 {second_text(value_at(job, 'forecast.finish_p95_at'))})"
        ),
    ),
    Column("on_time", "In time with a probability of", whole_percent_text, unknown="",
           value="forecast.on_time"),
    Column("finish_at_pace", "At the present pace", unknown=UNKNOWN_TEXT,
           shown=lambda at: f"done by {second_text(at)}, if nothing stops it"),
    Column("safest_finish_at", "On the safest capacity", unknown=UNKNOWN_TEXT,
           shown=lambda at: f"done by {second_text(at)}, if it went there at once"),
    Column("usd_to_come", "Expected dollars to completion", usd_text, unknown=UNKNOWN_TEXT,
           value=_to_come_usd),
    Column("usd", "Expected dollars in total", value=_total_text),
    Column("kwh_to_come", "Expected energy to completion", kwh_text, unknown="",
           value="forecast.kwh_to_come"),
)  # fmt: skip
"""What is expected of a job that is open."""


def forecast_source(job: Any) -> str:
    """Return what the forecast rests on, and how old it is."""
    made_at, decided_at = value_at(job, "forecast.made_at"), value_at(job, "decision.at")
    if made_at is not None:
        age_s = max(0.0, (value_at(job, "summary.now") - made_at).total_seconds())
        source = value_at(job, "forecast.source")
        return f"Made {seconds_text(age_s)} ago, at {second_text(made_at)}: {source}."
    if decided_at is None:
        return "No decision was made yet."
    return f"By the decision at {second_text(decided_at)}."


_NAMES = tuple(field.name for field in fields(JobSummary) if field.name != "state")
_SUBMISSION = ("submitted_at", "submitted_by", "schedule")
RAW_COLUMNS = (
    *(Column(name, name, value=f"summary.{name}") for name in _NAMES),
    *pick(JOB_COLUMNS, "state desired_state priority tenant nodes done_share usd slack_s next_at"),
    *pick(JOB_COLUMNS, "blocked_by"),
    *(Column(name, name, value=f"submission.{name}") for name in _SUBMISSION),
)
"""Every raw figure of a job, for programs."""


def jobs_table(rows: Sequence[JobRow], output: str = OutputFormat.TABLE) -> Table:
    """Return a row per job: a few figures for people, every raw one for programs."""
    if output in (OutputFormat.JSON, OutputFormat.CSV):
        return Table("costopt.status/1", "Jobs", RAW_COLUMNS, rows)
    keys = (
        "job state desired_state priority tenant nodes done_share usd kwh interruptions slack_s "
        "deadline_at blocked_by verdict"
    )
    return Table("costopt.status/1", "Jobs", pick(JOB_COLUMNS, keys), rows)


Figure = tuple[str, str, str]
"""Its name, value and basis."""
FIGURE_COLUMNS = (
    Column("figure", "Figure"),
    Column("value", "Value", fold_at=60),
    Column("basis", "Basis", fold_at=40),
)


def job_table(row: JobRow, output: str = OutputFormat.TABLE) -> Table:
    """Return figure, value and basis of all that a job came to; every raw figure for programs."""
    summary: JobSummary = row["summary"]
    if output in (OutputFormat.JSON, OutputFormat.CSV):
        facts = {name: row.get(name) for name in ("decision", "forecast", "nodes")}
        return replace(jobs_table([row], output), title=summary.job, facts=facts)
    of_summary = chain.from_iterable(of(summary) for of in (_work, _dollars, _energy, _nodes))
    figures = [*of_summary, *_details(row)]
    rows = [dict(zip(("figure", "value", "basis"), figure, strict=True)) for figure in figures]
    return Table(
        "costopt.run/1",
        f"Run of {summary.job}",
        FIGURE_COLUMNS,
        rows,
        lead=f"{deadline_verdict(summary)} {cost_sentence(summary)}",
    )


def _details(row: JobRow) -> Iterator[Figure]:
    """Yield what is known of a job beside its summary."""
    forecast = forecast_source(row) if row.get("forecast") else ""
    for columns, keys, basis in (
        (DETAILS, "blocked_by slack_s", "last tick"),
        (FORECAST, "finish_p50_at on_time usd" if forecast else "", forecast),
        (DETAILS, "failure decision_id reason", "ledger"),
        (DETAILS, "tenant priority desired_state submitted schedule next_at", "submission"),
    ):
        for column in pick(columns, keys):
            if column.value_in(row) is not None and (text := column.text(row)):
                yield f"{column.title[0].lower()}{column.title[1:]}", text, basis


def _work(summary: JobSummary) -> Iterator[Figure]:
    said, state = deadline_sentence(summary), summary.state.value
    yield "state", said if said.startswith(state) else f"{state}: {said}", "measured"
    done, lost = (work_text(n, summary.unit) for n in (summary.done_units, summary.lost_units))
    if summary.done_share is not None:
        done += f" of {summary.work_units or 0:,.0f} ({whole_percent_text(summary.done_share)})"
    yield "work done", done, "measured"
    yield "work lost", f"{lost}{_lost_share(summary, ' (', ')')}", "measured"
    if summary.tasks_done + summary.tasks_failed:
        counts = f"{summary.tasks_done} done, {summary.tasks_failed} failed"
        yield "tasks ended", f"{counts}, in {summary.task_starts} starts", "measured"
    if summary.cache_gib > 0 and summary.cache_node_s > 0:
        gbps = summary.cache_gib * GIGABITS_PER_GIB / summary.cache_node_s
        fetched = f"{number_text(summary.cache_gib)} GiB, {number_text(gbps)} Gbit/s per node"
        yield "cache fetched", fetched, "measured"
    if summary.guarantee:
        yield "result", summary.guarantee, "trainers"
    yield "deadline", _deadline(summary), "job file"


def _dollars(summary: JobSummary) -> Iterator[Figure]:
    spent, basis = usd_micros_text(summary.usd_micros), summary.spent_basis
    yield "spent", spent, basis
    if summary.budget_usd_micros is not None:
        forecast, of = summary.forecast_usd_micros, "job file"
        if forecast is not None and summary.finished_at is None:
            rate = usd_micros_text(summary.usd_micros_per_hour)
            of = f"in all {usd_micros_text(forecast)} at {rate}/h as now"
        yield "  of a budget of", usd_micros_text(summary.budget_usd_micros), of
    yield "  on spot", usd_micros_text(summary.spot_usd_micros), basis
    yield "  on demand", usd_micros_text(summary.on_demand_usd_micros), basis
    if summary.transfer_usd_micros != 0:
        yield "  on moving data", usd_micros_text(summary.transfer_usd_micros), "list price"
    if summary.list_usd_micros != summary.usd_micros:
        yield "  at list prices", usd_micros_text(summary.list_usd_micros), "the provider's list"
    if summary.committed_usd_micros != 0:
        used = usd_micros_text(summary.committed_usd_micros)
        yield "  of commitments, besides", used, "paid whether used or not"
    if summary.storage_usd_micros != 0:
        storage = usd_micros_text(summary.storage_usd_micros)
        yield "  on disks and storage", storage, "list price of volumes and checkpoints"
    due = usd_micros_text(summary.due_usd_micros)
    yield "against on-demand", _against(summary.saved_usd_share, due), _modelled(summary)


def _energy(summary: JobSummary) -> Iterator[Figure]:
    basis = summary.energy_basis or UNKNOWN_TEXT
    yield "energy", wh_text(summary.wh), basis
    yield "  while not training", wh_text(summary.idle_wh), basis
    due = wh_text(summary.due_wh)
    yield "energy against on-demand", _against(summary.saved_wh_share, due), _modelled(summary)
    for name, gco2e, source in (
        ("emissions", summary.gco2e, summary.carbon_basis or UNKNOWN_TEXT),
        ("  market-based", summary.market_based_gco2e, "contracts"),
        ("  embodied, apart", summary.embodied_gco2e, "machines' making"),
    ):
        yield name, f"{gco2e_text(gco2e)} CO2e", source
    yield "SCI, with embodied", sci_text(summary.sci_gco2e_per_unit, summary.unit), "SCI 1.1"


def _nodes(summary: JobSummary) -> Iterator[Figure]:
    yield "node-hours", f"{summary.node_seconds / 3600:,.2f}", "measured"
    yield "interruptions", f"{summary.interruptions}", "measured"
    if summary.replaced_nodes:
        yield "unhealthy nodes replaced", f"{summary.replaced_nodes}", "measured"
    if summary.health:
        yield "node health", summary.health, "agents"
    yield "launches", f"{summary.launches} ({summary.failed_launches} refused)", "measured"
    yield "moves to other pools", f"{summary.pool_switches}", "measured"
    yield "checkpoints", f"{summary.checkpoints} ({summary.checkpoints_refused} torn)", "measured"


def _deadline(summary: JobSummary) -> str:
    has_none = summary.start_at is not None and summary.deadline_at is None
    return "none" if has_none else second_text(summary.deadline_at)


def _lost_share(summary: JobSummary, before: str, after: str) -> str:
    if not summary.work_units:
        return ""
    return f"{before}{percent_text(summary.lost_units / summary.work_units)} of the job{after}"


def _modelled(summary: JobSummary) -> str:
    return f"modelled, {summary.baseline_basis}"


def _against(saved_share: float | None, due: str) -> str:
    if saved_share is None:
        return UNKNOWN_TEXT
    return f"{relative_to_baseline(saved_share)} {due} for the same work"


def job_tiles(run: RunView) -> tuple[Metric, ...]:
    """Return dollars, energy, emissions, deadline, interruptions and lost work of a run."""
    summary = run.summary
    due = _deadline(summary)
    if summary.deadline_at is not None:
        allowed_s = (summary.deadline_at - run.begun_at).total_seconds()
        due = f"after {seconds_text(allowed_s)}, at {minute_text(summary.deadline_at)}"
    pace = "Done", whole_percent_text(summary.done_share)
    if summary.finished_at is not None:
        pace = "Took", seconds_text((summary.finished_at - run.begun_at).total_seconds())
    moves = pluralize(summary.pool_switches, "move")
    return (
        Metric("Spent", usd_micros_text(summary.usd_micros), summary.spent_basis, _spent_note(run)),
        Metric(
            "Energy",
            wh_text(summary.wh),
            summary.energy_basis or UNKNOWN_TEXT,
            _energy_note(summary),
        ),
        Metric("Emissions (CO₂e)", gco2e_text(summary.gco2e), "modelled", _carbon_note(summary)),
        Metric(*pace, "measured", f"deadline {due}"),
        Metric(
            "Interruptions",
            str(summary.interruptions),
            "measured",
            f"{pluralize(summary.nodes_launched, 'node')} launched, {moves} to other pools",
        ),
        Metric(
            "Work lost",
            work_text(summary.lost_units, summary.unit),
            "measured",
            f"{_lost_share(summary, '', '; ')}{pluralize(summary.checkpoints, 'checkpoint')} saved",
        ),
    )


def _spent_note(run: RunView) -> str:
    summary, expected = run.summary, run.expected_totals()
    note = "no on-demand baseline known"
    if summary.saved_usd_share is not None:
        note = f"{relative_to_baseline(summary.saved_usd_share)} on-demand {summary.baseline_basis}"
    if summary.usd_micros:
        spot = whole_percent_text(summary.spot_usd_micros / summary.usd_micros)
        note += f"; {spot} of it on spot"
    if expected:
        note += f"; {usd_text(expected[0][1])} expected at the first decision"
    return note


def _energy_note(summary: JobSummary) -> str:
    if summary.wh is None:
        return "the power of a node is unknown"
    idle = f"{wh_text(summary.idle_wh)} of it not training"
    if summary.saved_wh_share is None:
        return idle
    return f"{relative_to_baseline(summary.saved_wh_share)} on-demand; {idle}"


def _carbon_note(summary: JobSummary) -> str:
    if summary.kwh is None:
        return "the energy used is unknown"
    if summary.gco2e is None:
        return "a region's carbon intensity is unknown"
    if summary.kwh <= 0:
        return "no energy used yet"
    return (
        f"{summary.gco2e / summary.kwh:,.0f} g per kWh on average; {summary.carbon_basis}; "
        f"market-based: {gco2e_text(summary.market_based_gco2e)}; "
        f"embodied, apart: {gco2e_text(summary.embodied_gco2e)}"
    )
