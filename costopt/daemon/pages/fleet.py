"""The pages of the fleet (living nodes and alerts) and of the market (the providers' offers)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from math import ceil, floor, log10

from costopt.daemon.lists import is_over
from costopt.daemon.pages.charts import daily_plots
from costopt.daemon.pages.layout import (
    ChartCache,
    PageRequest,
    age_text,
    clock,
    pool_text,
    take_first,
)
from costopt.daemon.reader import TenantReader
from costopt.daemon.shared_state import Alert, FleetNode, FleetView, MarketRow, MarketView
from costopt.domain.control import DesiredState
from costopt.domain.estimate import Estimate
from costopt.domain.policy import Limits
from costopt.formatting import (
    UNKNOWN_TEXT,
    pluralize,
    seconds_text,
    usd_micros_text,
    usd_per_hour_text,
    usd_text,
)
from costopt.ledger.summary import JobState
from costopt.render.page import Metric, Page, TableBlock, Tiles, job_cell, make_columns, table_block
from costopt.render.table import Cell

NODES_SHOWN = 500
ALERTS_SHOWN = 20


def fleet_page(reader: TenantReader, asked: PageRequest, charts: ChartCache) -> Page:
    """Return the page of the fleet: nodes, their cost, alerts, and what all jobs cost per day."""
    fleet = reader.fleet()
    ticked = reader.health().last_tick_at
    lead = "No tick has ended yet." if ticked is None else f"As of the tick at {clock(ticked)}."
    return Page(
        title="Fleet",
        over="Running nodes",
        lead=lead,
        blocks=(
            _tiles(reader, fleet),
            _alerts(reader.alerts()),
            _nodes(fleet, asked),
            *daily_plots(charts, reader, reader.jobs(), ""),
            *(() if reader.whole is None else (_tenants(fleet), _orphans(fleet))),
        ),
        filter_label="Job, tenant or pool",
    )


def _tiles(reader: TenantReader, fleet: FleetView) -> Tiles:
    every = reader.jobs()
    jobs = [status for status in every if not is_over(status)]
    training = sum(status.summary.state is JobState.TRAINING for status in jobs)
    held = sum(bool(s.blocked_by) for s in jobs if s.submission.desired_state is DesiredState.RUN)
    spent = sum(status.summary.usd_micros for status in every)
    draining = sum(node.draining for node in fleet.nodes)
    note = "orphaned nodes"
    orphans = Metric("Orphans", str(len(fleet.orphans)), "measured", note)
    return Tiles(
        (
            Metric("Nodes", str(len(fleet.nodes)), "measured", f"{draining} draining"),
            Metric(
                "Price",
                usd_per_hour_text(fleet.usd_per_hour),
                "at launch",
                "all nodes together",
            ),
            Metric(
                "Spent", usd_micros_text(spent), "measured", "by all jobs ever submitted"
            ),
            Metric(
                "Open jobs", str(len(jobs)), "measured",
                f"{training} training, {held} blocked",
            ),
            *(() if reader.whole is None else (orphans,)),
        )
    )  # fmt: skip


def _nodes(fleet: FleetView, asked: PageRequest) -> TableBlock:
    wanted = (n for n in fleet.nodes if asked.wants(n.node_id, n.job, n.tenant, n.pool))
    rows, left_out = take_first(wanted, NODES_SHOWN)
    return table_block(
        "nodes",
        "Nodes",
        make_columns("node", "job", "tenant", "pool", "state", "#since", "#price"),
        tuple(_node(node, fleet) for node in rows),
        empty="No node runs." if not asked.words else "No nodes match the filter.",
        left_out=left_out,
    )


def _node(node: FleetNode, fleet: FleetView) -> tuple[Cell, ...]:
    return (
        Cell(node.node_id),
        job_cell(node.job),
        Cell(node.tenant),
        Cell(pool_text(node.pool)),
        _state(node, fleet),
        Cell(age_text(node.launched_at, fleet.now)),
        Cell(usd_per_hour_text(node.usd_per_hour)),
    )


def _state(node: FleetNode, fleet: FleetView) -> Cell:
    if node.interrupts_at is not None:
        left_s = (node.interrupts_at - fleet.now).total_seconds()
        return Cell(f"interrupted in {seconds_text(max(0.0, left_s))}", tone="bad")
    if node.health and not node.draining:
        return Cell(node.health, tone="bad")
    return Cell("draining", tone="note") if node.draining else Cell(node.state.value)


def _tenants(fleet: FleetView) -> TableBlock:
    held: dict[str, list[FleetNode]] = defaultdict(list)
    for node in fleet.nodes:
        held[node.tenant].append(node)
    rows = tuple(
        (
            Cell(tenant),
            Cell(str(len({node.job for node in nodes}))),
            Cell(str(len(nodes))),
            Cell(usd_per_hour_text(sum(node.usd_per_hour for node in nodes))),
        )
        for tenant, nodes in sorted(held.items())
    )
    return table_block(
        "tenants", "Tenants", make_columns("tenant", "#jobs", "#nodes", "#price"), rows,
        empty="No tenant holds a node.",
    )  # fmt: skip


def _alerts(alerts: tuple[Alert, ...]) -> TableBlock:
    rows, left_out = take_first(reversed(alerts), ALERTS_SHOWN)
    return table_block(
        "alerts",
        "Alerts",
        make_columns("time", "kind", "job", "message"),
        tuple(
            (
                Cell(clock(alert.at)),
                Cell(alert.kind, tone="bad"),
                job_cell(alert.job) if alert.job else Cell("—"),
                Cell(alert.message),
            )
            for alert in rows
        ),
        lead="Newest first.",
        empty="No alerts since this daemon started.",
        left_out=left_out,
    )


def _orphans(fleet: FleetView) -> TableBlock:
    return table_block(
        "orphans",
        "Orphans",
        make_columns("node"),
        tuple((Cell(node, tone="bad"),) for node in fleet.orphans),
        empty=f"{pluralize(0, 'orphan')} found by the last sweep.",
    )


OFFERS_SHOWN = 400
OLD_S = Limits().max_price_age_s


def market_page(reader: TenantReader, asked: PageRequest) -> Page:
    """Return the page of offers with prices, hazards and their ages, the cheapest first."""
    market = reader.market()
    wanted = [row for row in market.rows if asked.wants(str(row.offer.pool))]
    rows, left_out = take_first(sorted(wanted, key=_by_price), OFFERS_SHOWN)
    grid = table_block(
        "offers",
        "Offers",
        make_columns(
            "pool", "#price", "price basis", "#price age", "#interruptions per node-hour",
            "interruptions basis", "#available", "note",
        ),
        tuple(_offer(row) for row in rows),
        lead="Cheapest first. Interruptions per node-hour with their interval.",
        empty="No offers match the filter." if asked.words else "No offers received yet.",
        left_out=left_out,
    )  # fmt: skip
    return Page(
        title="Market",
        over="Prices, availability and interruptions",
        lead=f"{pluralize(len(market.rows), 'offer')} at {clock(market.now)}.",
        blocks=(_silent(market), grid),
        filter_label="Provider, region, machine or capacity type",
    )


def _by_price(row: MarketRow) -> tuple[float, str]:
    price = row.offer.price_usd_per_hour
    return (float("inf") if price is None else price.value, str(row.offer.pool))


def _offer(row: MarketRow) -> tuple[Cell, ...]:
    offer = row.offer
    price, hazard = offer.price_usd_per_hour, offer.hazard_per_hour
    free = offer.nodes_available
    return (
        Cell(pool_text(str(offer.pool))),
        Cell(UNKNOWN_TEXT if price is None else usd_text(price.value), tone=_tone(price)),
        Cell(_source(price)),
        _age(row),
        Cell(hazard_text(hazard), tone=_tone(hazard)),
        Cell(_source(hazard)),
        Cell("unknown" if free is None else str(free), tone="bad" if free == 0 else "plain"),
        Cell(offer.unknown_because or "—"),
    )


def _tone(figure: Estimate | None) -> str:
    return "bad" if figure is None else "plain"


def _source(figure: Estimate | None) -> str:
    return "—" if figure is None else f"{figure.basis.value}: {figure.source}"


def hazard_text(hazard: Estimate | None) -> str:
    """Return interruptions per node-hour with their interval."""
    if hazard is None:
        return UNKNOWN_TEXT
    if hazard.low == hazard.high:
        return f"{hazard.value:.3g}"
    low, high = _rounded(hazard.low, floor), _rounded(hazard.high, ceil)
    return f"{hazard.value:.3g} ({low:.3g}–{high:.3g})"


def _rounded(bound: float, outward: Callable[[float], int]) -> float:
    """Return the bound with two digits, rounded away from the figure: it lies in its interval."""
    if bound <= 0:
        return 0.0
    unit = 10.0 ** (floor(log10(bound)) - 1)
    return outward(bound / unit) * unit


def _age(row: MarketRow) -> Cell:
    if row.price_age_s is None:
        return Cell("—")
    old = OLD_S is not None and row.price_age_s > OLD_S
    return Cell(seconds_text(max(0.0, row.price_age_s)), tone="bad" if old else "plain")


def _silent(market: MarketView) -> TableBlock:
    return table_block(
        "silent",
        "Unreachable providers",
        make_columns("provider", "error"),
        tuple(
            (Cell(name, tone="bad"), Cell(why))
            for name, why in sorted(market.provider_errors.items())
        ),
        empty="None.",
    )
