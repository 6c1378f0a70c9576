"""A what-if as a page: the frontier of one policy, and the scenarios."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from costopt.formatting import kwh_text, seconds_text, usd_text, whole_percent_text
from costopt.report.extra import require_report_extra
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
    (
        "Energy, CO2e",
        "Modelled from the catalogue's power figures and each region's intensity; unknown where "
        "a node's power is. Such plans are compared in energy with no other.",
    ),
    ("Takes, finish", "The median under the hazard, from the instant of the plan."),
    ("Scenarios", "Each policy, deadline and choice of terms, planned by itself."),
)

NONE_FRUGAL = "; none takes less energy"


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
        plot=frontier_plot(points) if any(p.kwh is not None for p in points) else None,
        points=frontier_table(points),
        undrawn=sum(point.kwh is None for point in points),
        scenarios=scenarios,
        how=_HOW,
    )
    return write_page(Path(path), page)


def _lead(points: Sequence[FrontierRow], policy: str) -> str:
    if not points:
        return f"Policy {policy} has no plan to draw a frontier of."
    cheapest = min(points, key=lambda p: p.usd)
    told = f"The cheapest plan comes to {usd_text(cheapest.usd)} and {_kwh(cheapest)}"
    return f"{told}{_frugal(cheapest, points)}{_sooner(cheapest, _earliest(points))}."


def _frugal(cheapest: FrontierRow, points: Sequence[FrontierRow]) -> str:
    if cheapest.kwh is None:
        return " energy"
    known = [(kwh, point.usd) for point in points if (kwh := point.kwh) is not None]
    least_kwh, usd_of_least = min(known)
    if cheapest.kwh <= least_kwh * 1.001 or cheapest.usd <= 0:
        return "; none is known to take less energy" if len(known) < len(points) else NONE_FRUGAL
    less, more = (
        whole_percent_text(1 - least_kwh / cheapest.kwh),
        whole_percent_text(usd_of_least / cheapest.usd - 1),
    )
    return f"; the most frugal takes {less} less energy for {more} more dollars"


def _earliest(points: Sequence[FrontierRow]) -> FrontierRow:
    return min(points, key=lambda p: p.takes_s)


def _sooner(cheapest: FrontierRow, earliest: FrontierRow) -> str:
    if earliest.takes_s > cheapest.takes_s - 60 or cheapest.usd <= 0:
        return ""
    more = whole_percent_text(earliest.usd / cheapest.usd - 1)
    before, now = seconds_text(cheapest.takes_s), seconds_text(earliest.takes_s)
    return f"; the earliest takes {now} where the cheapest takes {before}, for {more} more dollars"


def _kwh(point: FrontierRow) -> str:
    return kwh_text(point.kwh)
