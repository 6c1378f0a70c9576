"""A run's figures and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime

from costopt.domain.events import DecisionMade
from costopt.domain.fleet import ProviderCharge
from costopt.domain.money import to_micros
from costopt.formatting import (
    UNKNOWN_TEXT,
    choice_lines,
    gco2e_text,
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
from costopt.ledger.run_view import RunView
from costopt.ledger.summary import JobState, JobSummary
from costopt.render.page import Metric
from costopt.render.run_rows import (
    budget_rows,
    cache_rows,
    health_rows,
    result_rows,
    storage_rows,
    task_rows,
    term_rows,
    transfer_rows,
)
from costopt.render.table import Column, OutputFormat, Row, Table

RUN_COLUMNS = (
    Column("figure", "Figure"),
    Column("value", "Value", fold_at=60),
    Column("basis", "Basis", fold_at=40),
)


def run_table(summary: JobSummary) -> Table:
    """Return figure, value and basis of everything that a run came to."""
    rows = (
        ("state", _state(summary), "measured"),
        ("work done", _work(summary), "measured"),
        ("work lost", _lost(summary), "measured"),
        *task_rows(summary),
        *cache_rows(summary),
        *result_rows(summary),
        ("deadline", _deadline(summary), "job file"),
        ("spent", usd_micros_text(summary.usd_micros), summary.spent_basis),
        *budget_rows(summary),
        ("  on spot", usd_micros_text(summary.spot_usd_micros), summary.spent_basis),
        ("  on demand", usd_micros_text(summary.on_demand_usd_micros), summary.spent_basis),
        *transfer_rows(summary),
        *term_rows(summary),
        *storage_rows(summary),
        (
            "against on-demand",
            _against(summary.saved_usd_share, usd_micros_text(summary.due_usd_micros)),
            _baseline_basis(summary),
        ),
        ("energy", wh_text(summary.wh), summary.energy_basis or UNKNOWN_TEXT),
        ("  while not training", wh_text(summary.idle_wh), summary.energy_basis or UNKNOWN_TEXT),
        (
            "energy against on-demand",
            _against(summary.saved_wh_share, wh_text(summary.due_wh)),
            _baseline_basis(summary),
        ),
        ("emissions", f"{gco2e_text(summary.gco2e)} CO2e", summary.carbon_basis or UNKNOWN_TEXT),
        ("  market-based", f"{gco2e_text(summary.market_based_gco2e)} CO2e", "contracts"),
        ("  embodied, apart", f"{gco2e_text(summary.embodied_gco2e)} CO2e", "machines' making"),
        ("SCI, with embodied", sci_text(summary.sci_gco2e_per_unit, summary.unit), "SCI 1.1"),
        ("node-hours", f"{summary.node_seconds / 3600:,.2f}", "measured"),
        ("interruptions", str(summary.interruptions), "measured"),
        *health_rows(summary),
        ("launches", f"{summary.launches} ({summary.failed_launches} refused)", "measured"),
        ("moves to other pools", str(summary.pool_switches), "measured"),
        ("checkpoints", f"{summary.checkpoints} ({summary.checkpoints_refused} torn)", "measured"),
    )
    keys = [column.key for column in RUN_COLUMNS]
    cells = [dict(zip(keys, row, strict=True)) for row in rows]
    return Table("costopt.run/1", f"Run of {summary.job}", RUN_COLUMNS, cells)


def _deadline(summary: JobSummary) -> str:
    has_none = summary.start_at is not None and summary.deadline_at is None
    return "none" if has_none else second_text(summary.deadline_at)


def deadline_sentence(summary: JobSummary) -> str:
    """The run in a sentence: whether it kept its deadline, and by how much."""
    if summary.state is JobState.FAILED:
        return "failed; the job's own command ended with an error"
    margin_s = summary.margin_s
    if margin_s is not None:
        if margin_s >= 0:
            return f"finished {seconds_text(margin_s)} before its deadline"
        return f"finished {seconds_text(-margin_s)} after its deadline"
    if summary.start_at is None:
        return "not submitted yet"
    if summary.deadline_at is None:
        return "finished" if summary.finished_at is not None else "unfinished, without a deadline"
    left_s = (summary.deadline_at - summary.now).total_seconds()
    if left_s < 0:
        return f"unfinished, {seconds_text(-left_s)} past its deadline"
    return f"unfinished, {seconds_text(left_s)} left until its deadline"


def _state(summary: JobSummary) -> str:
    said, state = deadline_sentence(summary), summary.state.value
    return said if said.startswith(state) else f"{state}: {said}"


def _work(summary: JobSummary) -> str:
    if summary.done_share is None:
        return work_text(summary.done_units, summary.unit)
    done = work_text(summary.done_units, summary.unit)
    return f"{done} of {summary.work_units or 0:,.0f} ({whole_percent_text(summary.done_share)})"


def _lost(summary: JobSummary) -> str:
    lost = work_text(summary.lost_units, summary.unit)
    if not summary.work_units:
        return lost
    return f"{lost} ({percent_text(summary.lost_units / summary.work_units)} of the job)"


def _baseline_basis(summary: JobSummary) -> str:
    return f"modelled, {summary.baseline_basis}"


def _against(saved_share: float | None, due: str) -> str:
    if saved_share is None:
        return UNKNOWN_TEXT
    return f"{relative_to_baseline(saved_share)} {due} for the same work"


def run_tiles(run: RunView) -> tuple[Metric, ...]:
    """Dollars, energy, emissions, deadline, interruptions and lost work of a run."""
    summary = run.summary
    energy_basis = summary.energy_basis or UNKNOWN_TEXT
    return (
        Metric("Spent", usd_micros_text(summary.usd_micros), summary.spent_basis, _spent_note(run)),
        Metric("Energy", wh_text(summary.wh), energy_basis, _energy_note(summary)),
        Metric("Emissions (CO₂e)", gco2e_text(summary.gco2e), "modelled", _carbon_note(summary)),
        _deadline_tile(run),
        Metric(
            "Interruptions",
            str(summary.interruptions),
            "measured",
            f"{pluralize(summary.nodes_launched, 'node')} launched, "
            f"{pluralize(summary.pool_switches, 'move')} to other pools",
        ),
        Metric(
            "Work lost",
            work_text(summary.lost_units, summary.unit),
            "measured",
            _lost_note(summary),
        ),
    )


def _spent_note(run: RunView) -> str:
    summary, expected = run.summary, expected_totals(run)
    planned = f"; {usd_text(expected[0][1])} expected at the first decision" if expected else ""
    return f"{_saved_note(summary)}{planned}"


def _saved_note(summary: JobSummary) -> str:
    spot = summary.spot_usd_micros / summary.usd_micros if summary.usd_micros else None
    where = "" if spot is None else f"; {whole_percent_text(spot)} of it on spot"
    if summary.saved_usd_share is None:
        return f"no on-demand baseline known{where}"
    return (
        f"{relative_to_baseline(summary.saved_usd_share)} on-demand {summary.baseline_basis}{where}"
    )


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


def _deadline_tile(run: RunView) -> Metric:
    summary = run.summary
    if summary.finished_at is not None:
        took = (summary.finished_at - run.begun_at).total_seconds()
        return Metric("Took", seconds_text(took), "measured", f"deadline {_short(summary, run)}")
    return Metric(
        "Done",
        whole_percent_text(summary.done_share),
        "measured",
        f"deadline {_short(summary, run)}",
    )


def _short(summary: JobSummary, run: RunView) -> str:
    if summary.deadline_at is None:
        return _deadline(summary)
    allowed = (summary.deadline_at - run.begun_at).total_seconds()
    return f"after {seconds_text(allowed)}, at {minute_text(summary.deadline_at)}"


def _lost_note(summary: JobSummary) -> str:
    saves = f"{pluralize(summary.checkpoints, 'checkpoint')} saved"
    if not summary.work_units:
        return saves
    return f"{percent_text(summary.lost_units / summary.work_units)} of the job; {saves}"


DECISION_COLUMNS = (
    Column("decision", "Decision"),
    Column("hour", "Hour", "{:.2f}".format, right=True),
    Column("choice", "Choice", choice_lines),
    Column("reason", "Reason", pools_text, unknown=""),
    Column("usd", "$ to the end", usd_text, right=True),
    Column("instead", "Instead", pools_text),
    Column("slack_s", "Slack", seconds_text, right=True),
    Column("rule", "Rule", unknown=""),
)
MAX_ROWS = 200
MAX_ALTERNATIVES = 3


def decision_table(made: Sequence[DecisionMade], begun_at: datetime, title: str) -> Table:
    """The first MAX_ROWS decisions, each with the cheapest other choices, or its reason."""
    more = "" if len(made) <= MAX_ROWS else f" (the first {MAX_ROWS} of {len(made)})"
    rows = [_decision_row(event, begun_at) for event in made[:MAX_ROWS]]
    return Table("", f"{title}{more}", DECISION_COLUMNS, rows)


def _decision_row(event: DecisionMade, begun_at: datetime) -> Row:
    choice = choice_of(event)
    values = {what: value for what, value, _ in event.alternatives if value is not None}
    chosen = values.pop(choice, None)
    instead = sorted(values.items(), key=lambda pair: pair[1])[:MAX_ALTERNATIVES]
    return {
        "decision": event.decision_id,
        "reason": None if event.alternatives else event.reason,
        "hour": (event.at - begun_at).total_seconds() / 3600,
        "choice": choice,
        "usd": chosen,
        "instead": "\n".join(f"{what} {usd_text(value)}" for what, value in instead),
        "slack_s": event.slack_s,
        "rule": event.rule,
    }


def expected_totals(run: RunView) -> list[tuple[datetime, float]]:
    """Return dollars spent by then and expected to the end, at each decision that recorded both."""
    totals = []
    for event in run.decisions:
        choice = choice_of(event)
        value = next((usd for what, usd, _ in event.alternatives if what == choice), None)
        spent = [point.usd_micros for point in run.curves.spend if point.at <= event.at]
        if value is not None:
            totals.append((event.at, value + (spent[-1] if spent else 0) / 1e6))
    return totals


def choice_of(event: DecisionMade) -> str:
    """Return the decision in the form of an alternative."""
    return " + ".join(f"{nodes} × {pool}" for pool, nodes in event.targets) or "wait"


def ledger_drift(charge: ProviderCharge, run: RunView) -> str:
    """Both figures for the provider's nodes and the difference, in a sentence."""
    counted_micros = sum(
        row.usd_micros for row in run.intervals if row.pool.provider == charge.provider
    )
    billed_micros = to_micros(charge.usd)
    off = counted_micros - billed_micros
    share = f" ({off / billed_micros:+.1%})" if billed_micros else ""
    days = f"{charge.from_at:%Y-%m-%d} up to {charge.until_at:%Y-%m-%d}"
    return (
        f"{charge.provider} billed {usd_micros_text(billed_micros)} for job {charge.job} "
        f"from {days} "
        f"({charge.source}); the ledger counts {usd_micros_text(counted_micros)}, "
        f"{usd_micros_text(abs(off))}{share} {'more' if off >= 0 else 'less'}."
    )


def status_table(summary: JobSummary, output: str) -> Table:
    """Return figures, values and their basis for people, every raw figure for programs."""
    if output in (OutputFormat.JSON, OutputFormat.CSV):
        return summary_table([summary])
    return run_table(summary)


def summary_table(summaries: Sequence[JobSummary]) -> Table:
    """One row per job with every raw figure."""
    names = [field.name for field in fields(JobSummary)]
    rows: list[Row] = [{name: getattr(s, name) for name in names} for s in summaries]
    return Table("costopt.status/1", "Jobs", tuple(Column(name, name) for name in names), rows)


def jobs_table(summaries: Sequence[JobSummary]) -> Table:
    """One row per job for people."""
    columns = (
        Column("job", "Job"),
        Column("state", "State"),
        Column("done_share", "Done", whole_percent_text, right=True),
        Column("usd", "Spent", usd_text, right=True),
        Column("kwh", "kWh", number_text, right=True),
        Column("interruptions", "Interruptions", right=True, rank=2),
        Column("deadline_at", "Deadline", rank=1),
        Column("verdict", "Verdict", fold_at=60),
    )
    rows: list[Row] = [
        {
            "job": s.job,
            "state": s.state.value,
            "done_share": s.done_share,
            "usd": s.usd,
            "kwh": s.kwh,
            "interruptions": s.interruptions,
            "deadline_at": s.deadline_at,
            "verdict": deadline_sentence(s),
        }
        for s in summaries
    ]
    return Table("costopt.status/1", "Jobs", columns, rows)
