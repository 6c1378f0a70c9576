"""The pages of the fleet (living nodes and alerts) and of the market (the providers' offers)."""

from __future__ import annotations

from collections import defaultdict

from costopt.daemon.lists import is_over
from costopt.daemon.pages.charts import daily_plots
from costopt.daemon.pages.layout import ChartCache, PageRequest
from costopt.daemon.reader import TenantReader
from costopt.daemon.shared_state import FleetNode, FleetView, MarketRow
from costopt.domain.control import DesiredState
from costopt.formatting import pluralize, second_text, usd_micros_text, usd_per_hour_text
from costopt.ledger.summary import JobState
from costopt.render.page import Metric, Page, TableBlock, Tiles
from costopt.views.alert import ALERT_COLUMNS
from costopt.views.node import NODE_COLUMNS, ORPHAN_COLUMNS, TENANT_COLUMNS
from costopt.views.offer import ERROR_COLUMNS, OFFER_COLUMNS

NODES_SHOWN = 500
ALERTS_SHOWN = 20
OFFERS_SHOWN = 400


def fleet_page(reader: TenantReader, asked: PageRequest, charts: ChartCache) -> Page:
    """Return the page of the fleet: nodes, their cost, alerts, and what all jobs cost per day."""
    fleet = reader.fleet()
    ticked = reader.health().last_tick_at
    lead = f"As of the tick at {second_text(ticked)}." if ticked else "No tick has ended yet."
    nodes = [n for n in fleet.nodes if asked.wants(n.node_id, n.job, n.tenant, n.pool)]
    orphans = [{"node_id": node_id} for node_id in fleet.orphans]
    return Page(
        title="Fleet",
        over="Running nodes",
        lead=lead,
        blocks=(
            _tiles(reader, fleet),
            TableBlock(
                "alerts", "Alerts", ALERT_COLUMNS, reader.alerts()[::-1], "Newest first.",
                "No alerts since this daemon started.", ALERTS_SHOWN,
            ),
            TableBlock(
                "nodes", "Nodes", NODE_COLUMNS, nodes, most=NODES_SHOWN,
                empty="No nodes match the filter." if asked.words else "No node runs.",
            ),
            *daily_plots(charts, reader, reader.jobs(), ""),
            *(
                ()
                if reader.whole is None
                else (
                    _tenants(fleet),
                    TableBlock(
                        "orphans", "Orphans", ORPHAN_COLUMNS, orphans,
                        empty=f"{pluralize(0, 'orphan')} found by the last sweep.",
                    ),
                )
            ),
        ),
        filter_label="Job, tenant or pool",
    )  # fmt: skip


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


def _tenants(fleet: FleetView) -> TableBlock:
    held: dict[str, list[FleetNode]] = defaultdict(list)
    for node in fleet.nodes:
        held[node.tenant].append(node)
    rows = [
        {
            "tenant": tenant,
            "jobs": len({node.job for node in nodes}),
            "nodes": len(nodes),
            "usd_per_hour": sum(node.usd_per_hour for node in nodes),
        }
        for tenant, nodes in sorted(held.items())
    ]
    return TableBlock("tenants", "Tenants", TENANT_COLUMNS, rows, empty="No tenant holds a node.")


def market_page(reader: TenantReader, asked: PageRequest) -> Page:
    """Return the page of offers with prices, hazards and their ages, the cheapest first."""
    market = reader.market()
    wanted = [row for row in market.rows if asked.wants(str(row.offer.pool))]
    errors = [{"provider": name, "error": why} for name, why in market.provider_errors.items()]
    return Page(
        title="Market",
        over="Prices, availability and interruptions",
        lead=f"{pluralize(len(market.rows), 'offer')} at {second_text(market.now)}.",
        blocks=(
            TableBlock(
                "silent", "Unreachable providers",
                ERROR_COLUMNS,
                sorted(errors, key=lambda row: row["provider"]),
            ),
            TableBlock(
                "offers", "Offers", OFFER_COLUMNS, sorted(wanted, key=_by_price),
                "Cheapest first. Interruptions per node-hour with their interval.",
                "No offers match the filter." if asked.words else "No offers received yet.",
                OFFERS_SHOWN,
            ),
        ),
        filter_label="Provider, region, machine or capacity type",
    )  # fmt: skip


def _by_price(row: MarketRow) -> tuple[float, str]:
    price = row.offer.price_usd_per_hour
    return (float("inf") if price is None else price.value, str(row.offer.pool))
