"""What several jobs cost and consumed, beside the same work on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from costopt.domain.estimate import sum_of_known
from costopt.domain.policy import CarbonSignal
from costopt.formatting import (
    UNKNOWN_TEXT,
    gco2e_text,
    usd_micros_text,
    wh_text,
    whole_percent_text,
)
from costopt.ledger.summary import JobSummary
from costopt.render.table import Column
from costopt.views.job import job_path


@dataclass(frozen=True, slots=True)
class CostSums:
    """Figures of several ``jobs``, which ``name`` names. ``due`` and the savings count the
    ``known`` jobs with a baseline; that of ``measured`` of them is at the measured speed. If the
    energy of one job is unknown, the total is unknown; so are the energy savings if that of one job
    with a baseline is. Emissions by average and by marginal intensities do not add up: with both
    ``signals`` the total is unknown.
    """

    name: str
    jobs: int
    usd_micros: int
    spot_usd_micros: int
    wh: float | None
    gco2e: float | None
    market_based_gco2e: float | None
    embodied_gco2e: float | None
    carbon_bases: tuple[str, ...]
    signals: tuple[str, ...]
    known: int
    measured: int
    due_usd_micros: int
    known_usd_micros: int
    saved_wh: float | None

    @classmethod
    def of(cls, summaries: Sequence[JobSummary], name: str = "") -> CostSums:
        """Return the totals of the summaries."""
        known = [s for s in summaries if s.due_usd_micros is not None]
        signals = sorted({s.carbon_signal for s in summaries if s.carbon_signal is not None})
        return cls(
            name,
            len(summaries),
            sum(s.usd_micros for s in summaries),
            sum(s.spot_usd_micros for s in summaries),
            sum_of_known(s.wh for s in summaries),
            sum_of_known(s.gco2e for s in summaries) if len(signals) < 2 else None,
            sum_of_known(s.market_based_gco2e for s in summaries),
            sum_of_known(s.embodied_gco2e for s in summaries),
            tuple(sorted({s.carbon_basis for s in summaries if s.carbon_basis is not None})),
            tuple(signals),
            len(known),
            sum(s.speed_ratio is not None for s in known),
            sum(s.due_usd_micros or 0 for s in known),
            sum(s.usd_micros for s in known),
            sum_of_known(s.saved_wh for s in known),
        )

    @property
    def emissions_text(self) -> str:
        """Return the emissions, and their signal unless they are location-based."""
        if len(self.signals) > 1:
            return f"{UNKNOWN_TEXT}: {' and '.join(self.signals)}"
        text = gco2e_text(self.gco2e)
        located = not self.signals or self.signals[0] == CarbonSignal.AVERAGE
        return text if located else f"{text} {self.signals[0]}"

    @property
    def saved_usd_micros(self) -> int | None:
        """Return the savings against on-demand; negative if it cost more. None if no baseline is
        known."""
        return self.due_usd_micros - self.known_usd_micros if self.known else None

    @property
    def saved_share(self) -> float | None:
        """Return the savings as a share of what on-demand would have cost."""
        saved = self.saved_usd_micros
        return None if saved is None or not self.due_usd_micros else saved / self.due_usd_micros


def _tone(totals: CostSums) -> str:
    saved = totals.saved_usd_micros
    return "plain" if not saved else "good" if saved > 0 else "bad"


def _figure(key: str, title: str, shown: Any, tone: Any = "plain") -> Column:
    return Column(key, title, shown, right=True, unknown=UNKNOWN_TEXT, tone=tone)


COST_COLUMNS = (
    Column("job", "Job", value="name", link=job_path),
    Column("tenant", "Tenant", value="name"),
    Column("jobs", "Jobs", right=True),
    _figure("usd_micros", "Spent", usd_micros_text),
    _figure("spot_usd_micros", "On spot", usd_micros_text),
    _figure("due_usd_micros", "On-demand, same work", usd_micros_text),
    _figure("saved_usd_micros", "Saved", usd_micros_text, _tone),
    _figure("saved_share", "Saved share", whole_percent_text, _tone),
    _figure("wh", "Energy", wh_text),
    _figure("saved_wh", "Energy saved", wh_text),
    _figure("emissions_text", "CO₂e", str),
    _figure("market_based_gco2e", "Market-based", gco2e_text),
)
"""A row is a CostSums."""
