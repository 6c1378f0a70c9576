"""A run's headline figures, each with its basis and a note."""

from __future__ import annotations

from dataclasses import dataclass

from costopt.ledger.summary import JobSummary
from costopt.report.figure import (
    UNKNOWN,
    against,
    carbon,
    duration,
    energy,
    instant,
    share,
    units,
    usd,
)
from costopt.report.run import Run


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure in large type. ``basis`` says where it comes from, "" where that is plain."""

    name: str
    value: str
    basis: str
    note: str


def counted(number: int, noun: str) -> str:
    """A number with its noun: "1 node", "3 nodes"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def run_tiles(run: Run, cost_basis: str) -> tuple[Tile, ...]:
    """Dollars, energy, emissions, deadline, interruptions and lost work of a run.

    ``cost_basis`` is as ``write_run_report`` takes it.
    """
    summary = run.summary
    energy_basis = summary.energy_basis or UNKNOWN
    return (
        Tile("Spent", usd(summary.usd_micros), cost_basis, _spent_note(summary)),
        Tile("Energy", energy(summary.wh), energy_basis, _energy_note(summary)),
        Tile("Emissions (CO₂e)", carbon(summary.gco2e), "modelled", _carbon_note(summary)),
        _deadline_tile(run),
        Tile(
            "Interruptions",
            str(summary.interruptions),
            "measured",
            f"{counted(summary.nodes_launched, 'node')} launched, "
            f"{counted(summary.pool_switches, 'move')} to other pools",
        ),
        Tile(
            "Work lost",
            units(summary.lost_units, summary.unit),
            "measured",
            _lost_note(summary),
        ),
    )


def _spent_note(summary: JobSummary) -> str:
    spot = summary.spot_usd_micros / summary.usd_micros if summary.usd_micros else None
    where = "" if spot is None else f"; {share(spot)} of it on spot"
    if summary.saved_usd_share is None:
        return f"no on-demand baseline known{where}"
    return f"{against(summary.saved_usd_share)} on-demand {summary.baseline_basis}{where}"


def _energy_note(summary: JobSummary) -> str:
    if summary.wh is None:
        return "the power of a node is unknown"
    idle = f"{energy(summary.idle_wh)} of it not training"
    if summary.saved_wh_share is None:
        return idle
    return f"{against(summary.saved_wh_share)} on-demand; {idle}"


def _carbon_note(summary: JobSummary) -> str:
    if summary.kwh is None:
        return "the energy used is unknown"
    if summary.gco2e is None:
        return "a region's carbon intensity is unknown"
    if summary.kwh <= 0:
        return "no energy used yet"
    return f"{summary.gco2e / summary.kwh:,.0f} g per kWh on average; {summary.carbon_basis}"


def _deadline_tile(run: Run) -> Tile:
    summary = run.summary
    if summary.finished_at is not None:
        took = (summary.finished_at - run.begun_at).total_seconds()
        return Tile("Took", duration(took), "measured", f"deadline {_short(summary, run)}")
    return Tile("Done", share(summary.done_share), "measured", f"deadline {_short(summary, run)}")


def _short(summary: JobSummary, run: Run) -> str:
    if summary.deadline_at is None:
        return UNKNOWN
    allowed = (summary.deadline_at - run.begun_at).total_seconds()
    return f"after {duration(allowed)}, at {instant(summary.deadline_at)[:-3]}"


def _lost_note(summary: JobSummary) -> str:
    saves = f"{counted(summary.checkpoints, 'checkpoint')} saved"
    if not summary.work_units:
        return saves
    return f"{summary.lost_units / summary.work_units:.1%} of the job; {saves}".replace("%", " %")
