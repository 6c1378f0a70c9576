"""A run's headline figures, each with its basis and a note."""

from __future__ import annotations

from dataclasses import dataclass

from costopt.formatting import (
    UNKNOWN_TEXT,
    gco2e_text,
    minute_text,
    relative_to_baseline,
    seconds_text,
    usd_micros_text,
    wh_text,
    whole_percent_text,
    work_text,
)
from costopt.ledger.summary import JobSummary
from costopt.report.run import RunView


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure in large type. ``basis`` says where it comes from, "" where that is plain."""

    name: str
    value: str
    basis: str
    note: str


def pluralize(number: int, noun: str) -> str:
    """A number with its noun: "1 node", "3 nodes"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def run_tiles(run: RunView, cost_basis: str) -> tuple[Metric, ...]:
    """Dollars, energy, emissions, deadline, interruptions and lost work of a run.

    ``cost_basis`` is as ``write_run_report`` takes it.
    """
    summary = run.summary
    energy_basis = summary.energy_basis or UNKNOWN_TEXT
    return (
        Metric("Spent", usd_micros_text(summary.usd_micros), cost_basis, _spent_note(summary)),
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


def _spent_note(summary: JobSummary) -> str:
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
    return f"{summary.gco2e / summary.kwh:,.0f} g per kWh on average; {summary.carbon_basis}"


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
        return UNKNOWN_TEXT
    allowed = (summary.deadline_at - run.begun_at).total_seconds()
    return f"after {seconds_text(allowed)}, at {minute_text(summary.deadline_at)}"


def _lost_note(summary: JobSummary) -> str:
    saves = f"{pluralize(summary.checkpoints, 'checkpoint')} saved"
    if not summary.work_units:
        return saves
    return f"{summary.lost_units / summary.work_units:.1%} of the job; {saves}".replace("%", " %")
