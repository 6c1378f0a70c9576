"""The page of dollars and energy: what was spent, and what on-demand would have cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from costopt.daemon.pages.charts import daily_plots
from costopt.daemon.pages.guards import budget_bars
from costopt.daemon.pages.layout import ChartCache, PageRequest, take_first, wanted_jobs
from costopt.daemon.reader import TenantReader
from costopt.domain.policy import CarbonSignal
from costopt.formatting import (
    UNKNOWN_TEXT,
    gco2e_text,
    pluralize,
    usd_micros_text,
    wh_text,
    whole_percent_text,
)
from costopt.ledger.summary import JobSummary
from costopt.render.page import Metric, Page, Tiles, job_cell, make_columns, table_block
from costopt.render.table import Cell

JOBS_SHOWN = 300
MONEY = (
    "#spent", "#on spot", "#on-demand, same work", "#saved", "#saved share", "#energy",
    "#energy saved", "#CO₂e", "#market-based",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CostTotalsRow:
    """Figures of several jobs. ``due`` and the savings count the ``known`` jobs with a baseline;
    that of ``measured`` of them is at the measured speed. If the energy of one job is unknown, the
    total is unknown; so are the energy savings if that of one job with a baseline is. Emissions by
    average and by marginal intensities do not add up: with both ``signals`` the total is unknown.
    """

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
    def of(cls, summaries: Sequence[JobSummary]) -> CostTotalsRow:
        """Return the totals of the summaries."""
        known = [s for s in summaries if s.due_usd_micros is not None]
        signals = sorted({s.carbon_signal for s in summaries if s.carbon_signal is not None})
        return cls(
            sum(s.usd_micros for s in summaries),
            sum(s.spot_usd_micros for s in summaries),
            _sum(s.wh for s in summaries),
            _sum(s.gco2e for s in summaries) if len(signals) < 2 else None,
            _sum(s.market_based_gco2e for s in summaries),
            _sum(s.embodied_gco2e for s in summaries),
            tuple(sorted({s.carbon_basis for s in summaries if s.carbon_basis is not None})),
            tuple(signals),
            len(known),
            sum(s.speed_ratio is not None for s in known),
            sum(s.due_usd_micros or 0 for s in known),
            sum(s.usd_micros for s in known),
            _sum(s.saved_wh for s in known),
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


def _sum(figures: Iterable[float | None]) -> float | None:
    """Return the sum; None if any figure is unknown."""
    every = list(figures)
    known = [figure for figure in every if figure is not None]
    return sum(known) if len(known) == len(every) else None


def ledger_page(reader: TenantReader, asked: PageRequest, charts: ChartCache) -> Page:
    """Return the page of totals, budgets and days, then by tenant, then by job, the most expensive
    first."""
    statuses = wanted_jobs(reader, asked)
    tenants: dict[str, list[JobSummary]] = defaultdict(list)
    for status in statuses:
        tenants[status.submission.tenant].append(status.summary)
    summaries = [status.summary for status in statuses]
    dearest = sorted(summaries, key=lambda s: s.usd_micros, reverse=True)
    rows, left_out = take_first(dearest, JOBS_SHOWN)
    return Page(
        title="Ledger",
        over="Money, energy and savings",
        lead="What providers confirmed was running, against the same work on demand.",
        blocks=(
            _tiles(CostTotalsRow.of(summaries), len(summaries)),
            *daily_plots(charts, reader, statuses, asked.words),
            budget_bars(reader),
            table_block(
                "tenants",
                "Tenants",
                make_columns("tenant", "#jobs", *MONEY),
                tuple(
                    (Cell(name), Cell(str(len(theirs))), *_sums(CostTotalsRow.of(theirs)))
                    for name, theirs in sorted(tenants.items())
                ),
                empty="No job was submitted yet.",
            ),
            table_block(
                "jobs",
                "Jobs",
                make_columns("job", *MONEY),
                tuple((job_cell(s.job), *_sums(CostTotalsRow.of([s]))) for s in rows),
                lead="Most expensive first.",
                empty="No job was submitted yet.",
                left_out=left_out,
            ),
        ),
        filter_label="Job or tenant",
    )


def _tiles(sums: CostTotalsRow, jobs: int) -> Tiles:
    spot = whole_percent_text(sums.spot_usd_micros / sums.usd_micros) if sums.usd_micros else "none"
    saved = sums.saved_usd_micros
    with_baseline = f"of {pluralize(sums.known, 'job')} with a baseline, of {jobs} in all"
    at_speed = f"at the measured speed of {sums.measured}, at the declared one of the others"
    return Tiles(
        (
            Metric("Spent", usd_micros_text(sums.usd_micros), "measured", f"{spot} of it on spot"),
            Metric(
                "Saved" if saved is None or saved >= 0 else "More than on-demand",
                UNKNOWN_TEXT if saved is None else usd_micros_text(abs(saved)), "modelled baseline",
                f"{whole_percent_text(sums.saved_share)} of on-demand; {with_baseline}; {at_speed}",
            ),
            Metric(
                "Energy", wh_text(sums.wh), "measured or modelled", "at the data centre's meter"
            ),
            Metric(
                "Emissions (CO₂e)", sums.emissions_text, "modelled",
                "; ".join(
                    (
                        *sums.carbon_bases,
                        f"market-based: {gco2e_text(sums.market_based_gco2e)}",
                        f"embodied, apart: {gco2e_text(sums.embodied_gco2e)}",
                    )
                ),
            ),
        )
    )  # fmt: skip


def _sums(sums: CostTotalsRow) -> tuple[Cell, ...]:
    saved = sums.saved_usd_micros
    tone = "plain" if not saved else "good" if saved > 0 else "bad"
    return (
        Cell(usd_micros_text(sums.usd_micros)),
        Cell(usd_micros_text(sums.spot_usd_micros)),
        Cell(usd_micros_text(sums.due_usd_micros if sums.known else None)),
        Cell(usd_micros_text(saved), tone=tone),
        Cell(whole_percent_text(sums.saved_share), tone=tone),
        Cell(wh_text(sums.wh)),
        Cell(wh_text(sums.saved_wh) if sums.known else UNKNOWN_TEXT),
        Cell(sums.emissions_text),
        Cell(gco2e_text(sums.market_based_gco2e)),
    )
