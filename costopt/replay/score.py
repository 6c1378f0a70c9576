"""What came of one trial, in figures that fit on a line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from costopt.domain.events import Event, ProgressReported, WorkLost
from costopt.ledger.summary import JobSummary
from costopt.replay.hindsight import HindsightOptimum
from costopt.replay.rehearsal import ReplayResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One policy on one window; None is unknown or not defined.

    ``finish_s`` counts from the job's start, None where it never finished. ``lost_s`` are seconds
    that the lost work took. ``low_usd`` is below ``usd`` where an optimum is known by bounds only.
    ``gco2e`` counts by the intensity of the hour for ``hourly_carbon_share`` of the energy, by
    annual means for the rest.
    ``strategy_failure`` is why the strategy failed first, so that the shield decided.
    """

    usd: float | None
    low_usd: float | None = None
    kwh: float | None = None
    gco2e: float | None = None
    hourly_carbon_share: float | None = None
    finish_s: float | None = None
    on_time: bool | None = None
    interruptions: int | None = None
    switches: int | None = None
    lost_s: float | None = None
    strategy_failure: str | None = None

    @property
    def finished(self) -> bool:
        """Whether the work was done, late or not; an optimum's always is."""
        return self.finish_s is not None or self.on_time is True


UNDEFINED = Score(usd=None)
"""Of what is not defined for the job on the market: an optimum, or on-demand without an offer."""


def score_replay(rehearsal: ReplayResult) -> Score:
    """The figures of a replay."""
    summary = rehearsal.summary
    return Score(
        usd=summary.usd,
        low_usd=summary.usd,
        kwh=summary.kwh,
        gco2e=summary.gco2e,
        hourly_carbon_share=summary.hourly_carbon_share,
        finish_s=_finish_s(summary),
        on_time=summary.on_time is True,
        interruptions=summary.interruptions,
        switches=summary.pool_switches,
        lost_s=_lost_s(recorded.event for recorded in rehearsal.events),
        strategy_failure=rehearsal.strategy_failure,
    )


def score_hindsight(best: HindsightOptimum | None) -> Score:
    """The figures of the optimum; only its dollars are told."""
    if best is None:
        return UNDEFINED
    return Score(usd=best.usd, low_usd=best.low_usd, on_time=True)


def _finish_s(summary: JobSummary) -> float | None:
    if summary.finished_at is None or summary.start_at is None:
        return None
    return (summary.finished_at - summary.start_at).total_seconds()


def _lost_s(events: Iterable[Event]) -> float | None:
    """Seconds that the lost work took at the speed reported last before it was lost.

    None where work was lost before any speed was reported.
    """
    lost_s, units_per_s = 0.0, None
    for event in events:
        match event:
            case ProgressReported(units_per_s=reported) if reported:
                units_per_s = reported
            case WorkLost(units=units) if units > 0:
                if units_per_s is None:
                    return None
                lost_s += units / units_per_s
    return lost_s
