"""A run in a table of figures, each with where it comes from."""

from __future__ import annotations

from datetime import datetime

from costopt.formatting import (
    UNKNOWN_TEXT,
    gco2e_text,
    relative_to_baseline,
    second_text,
    seconds_text,
    usd_micros_text,
    wh_text,
    whole_percent_text,
    work_text,
)
from costopt.ledger.account import JobAccount
from costopt.ledger.summary import JobState, JobSummary
from costopt.report.table import Table


def run_table(account: JobAccount, now: datetime) -> Table:
    """Figure, value and basis of everything that a run came to, at ``now``."""
    summary = account.summary(now)
    rows = (
        ("state", _state(summary), "measured"),
        ("work done", _work(summary), "measured"),
        ("work lost", _lost(summary), "measured"),
        *_result(summary),
        ("deadline", second_text(summary.deadline_at), "job file"),
        ("spent", usd_micros_text(summary.usd_micros), "measured"),
        ("  on spot", usd_micros_text(summary.spot_usd_micros), "measured"),
        ("  on demand", usd_micros_text(summary.on_demand_usd_micros), "measured"),
        *_transfers(summary),
        ("against on-demand", _against(summary), _baseline_basis(summary)),
        ("energy", wh_text(summary.wh), summary.energy_basis or UNKNOWN_TEXT),
        (
            "  while not training",
            wh_text(summary.idle_wh),
            summary.energy_basis or UNKNOWN_TEXT,
        ),
        ("emissions", f"{gco2e_text(summary.gco2e)} CO2e", summary.carbon_basis or UNKNOWN_TEXT),
        ("node-hours", f"{summary.node_seconds / 3600:,.2f}", "measured"),
        ("interruptions", str(summary.interruptions), "measured"),
        ("launches", f"{summary.launches} ({summary.failed_launches} refused)", "measured"),
        ("moves to other pools", str(summary.pool_switches), "measured"),
        ("checkpoints", f"{summary.checkpoints} ({summary.checkpoints_refused} torn)", "measured"),
    )
    return Table(f"Run of {account.job}", ("figure", "value", "basis"), rows)


def deadline_sentence(summary: JobSummary) -> str:
    """The run in a sentence: whether it kept its deadline, and by how much."""
    if summary.state is JobState.FAILED:
        return "failed; the job's own command ended with an error"
    margin_s = summary.margin_s
    if margin_s is not None:
        if margin_s >= 0:
            return f"finished {seconds_text(margin_s)} before its deadline"
        return f"finished {seconds_text(-margin_s)} after its deadline"
    if summary.deadline_at is None:
        return "not submitted yet"
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
    return f"{lost} ({summary.lost_units / summary.work_units:.1%} of the job)"


def _result(summary: JobSummary) -> tuple[tuple[str, str, str], ...]:
    """A row only where the trainers said how exact it is."""
    return (("result", summary.guarantee, "trainers"),) if summary.guarantee else ()


def _transfers(summary: JobSummary) -> tuple[tuple[str, str, str], ...]:
    """A row only where something was moved."""
    if summary.transfer_usd_micros == 0:
        return ()
    return (("  on moving data", usd_micros_text(summary.transfer_usd_micros), "list price"),)


def _baseline_basis(summary: JobSummary) -> str:
    return f"modelled, {summary.baseline_basis}"


def _against(summary: JobSummary) -> str:
    if summary.saved_usd_share is None:
        return UNKNOWN_TEXT
    stands = relative_to_baseline(summary.saved_usd_share)
    return f"{stands} {usd_micros_text(summary.due_usd_micros)} for the same work"
