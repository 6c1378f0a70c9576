"""The page of dollars and energy: what was spent, and what on-demand would have cost."""

from __future__ import annotations

from collections import defaultdict

from costopt.daemon.pages.charts import daily_plots
from costopt.daemon.pages.guards import budget_bars
from costopt.daemon.pages.layout import ChartCache, PageRequest, wanted_jobs
from costopt.daemon.reader import TenantReader
from costopt.formatting import (
    UNKNOWN_TEXT,
    gco2e_text,
    pluralize,
    usd_micros_text,
    wh_text,
    whole_percent_text,
)
from costopt.ledger.summary import JobSummary
from costopt.render.page import Metric, Page, TableBlock, Tiles
from costopt.views.cost import COST_COLUMNS, CostSums


def ledger_page(reader: TenantReader, asked: PageRequest, charts: ChartCache) -> Page:
    """Return the page of totals, budgets and days, then by tenant, then by job, the most expensive
    first."""
    statuses = wanted_jobs(reader, asked)
    tenants: dict[str, list[JobSummary]] = defaultdict(list)
    for status in statuses:
        tenants[status.submission.tenant].append(status.summary)
    summaries = [status.summary for status in statuses]
    summaries.sort(key=lambda summary: summary.usd_micros, reverse=True)
    by_tenant = [CostSums.of(theirs, name) for name, theirs in sorted(tenants.items())]
    by_job = [CostSums.of([summary], summary.job) for summary in summaries]
    job, tenant, number, *figures = COST_COLUMNS
    empty = "No job was submitted yet."
    return Page(
        title="Ledger",
        over="Money, energy and savings",
        lead="What providers confirmed was running, against the same work on demand.",
        blocks=(
            _tiles(CostSums.of(summaries)),
            *daily_plots(charts, reader, statuses, asked.words),
            budget_bars(reader),
            TableBlock(
                "tenants", "Tenants", (tenant, number, *figures), by_tenant, empty=empty
            ),
            TableBlock(
                "jobs", "Jobs", (job, *figures), by_job, "Most expensive first.", empty
            ),
        ),
        filter_label="Job or tenant",
    )  # fmt: skip


def _tiles(sums: CostSums) -> Tiles:
    spot = whole_percent_text(sums.spot_usd_micros / sums.usd_micros) if sums.usd_micros else "none"
    saved = sums.saved_usd_micros
    with_baseline = f"of {pluralize(sums.known, 'job')} with a baseline, of {sums.jobs} in all"
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
