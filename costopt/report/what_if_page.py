"""A what-if as a page: the frontier of one policy, and the scenarios."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from costopt.report.extra import require_report_extra
from costopt.report.figure import duration, energy, share, usd
from costopt.report.frontier_plot import frontier_plot
from costopt.report.frontier_table import FrontierRow, frontier_table
from costopt.report.page import render_page, write_page
from costopt.report.table import Table

_HOW = (
    ("Frontier", "Plans of one policy; none of them is beaten in dollars, energy and finish."),
    (
        "Dollars",
        "Expected, interruptions and the work that they cost included. No node was rented.",
    ),
    ("Energy, CO2e", "Modelled from the catalogue's power figures and each region's intensity."),
    ("Takes, finish", "The median under the hazard, from the instant of the plan."),
    ("Scenarios", "Each policy, deadline and choice of terms, planned by itself."),
)


def write_what_if_report(
    points: Sequence[FrontierRow],
    scenarios: Table,
    path: Path | str,
    *,
    policy: str,
    now: datetime | None = None,
    title: str = "What if",
) -> Path:
    """Write frontier and scenarios as one self-contained HTML file.

    ``points`` may be empty; ``policy`` is the one that they are of. Raises MissingExtraError, and
    StoreError where the file cannot be written.
    """
    require_report_extra()
    page = render_page(
        "what_if.html.j2",
        title=title,
        made_at=now or datetime.now(UTC),
        lead=_lead(points, policy),
        policy=policy,
        plot=frontier_plot(points) if points else None,
        points=frontier_table(points),
        scenarios=scenarios,
        how=_HOW,
    )
    return write_page(Path(path), page)


def _lead(points: Sequence[FrontierRow], policy: str) -> str:
    if not points:
        return f"Policy {policy} has no plan to draw a frontier of."
    cheapest, frugal = min(points, key=lambda p: p.usd), min(points, key=lambda p: p.kwh)
    told = f"The cheapest plan comes to {usd(cheapest.usd * 1e6)} and {_kwh(cheapest)}"
    if cheapest.kwh <= frugal.kwh * 1.001 or cheapest.usd <= 0:
        told = f"{told}; none takes less energy"
    else:
        less, more = share(1 - frugal.kwh / cheapest.kwh), share(frugal.usd / cheapest.usd - 1)
        told = f"{told}; the most frugal takes {less} less energy for {more} more dollars"
    return f"{told}{_sooner(cheapest, min(points, key=lambda p: p.takes_s))}."


def _sooner(cheapest: FrontierRow, earliest: FrontierRow) -> str:
    if earliest.takes_s > cheapest.takes_s - 60 or cheapest.usd <= 0:
        return ""
    more = share(earliest.usd / cheapest.usd - 1)
    before, now = duration(cheapest.takes_s), duration(earliest.takes_s)
    return f"; the earliest takes {now} where the cheapest takes {before}, for {more} more dollars"


def _kwh(point: FrontierRow) -> str:
    return energy(point.kwh * 1000)
