"""The page of what providers sell."""

from __future__ import annotations

from costopt.daemon.pages.asked import PageRequest, take_first
from costopt.daemon.pages.words import clock, pool_text
from costopt.daemon.reader import TenantReader
from costopt.daemon.views import MarketRow, MarketView
from costopt.domain.estimate import Estimate
from costopt.domain.policy import Limits
from costopt.formatting import UNKNOWN_TEXT, seconds_text, usd_text
from costopt.render.page import Page, TableBlock, make_columns, table_block
from costopt.render.run_tables import pluralize
from costopt.render.table import Cell

OFFERS_SHOWN = 400
OLD_S = Limits().max_price_age_s


def market_page(reader: TenantReader, asked: PageRequest) -> Page:
    """Offers with prices, hazards and how old they are, the cheapest first."""
    market = reader.market()
    wanted = [row for row in market.rows if asked.wants(str(row.offer.pool))]
    rows, left_out = take_first(sorted(wanted, key=_by_price), OFFERS_SHOWN)
    grid = table_block(
        "offers",
        "Offers",
        make_columns(
            "pool", "#price", "price is", "#price age", "#hazard per hour", "hazard is",
            "#to be had", "note",
        ),
        tuple(_offer(row) for row in rows),
        lead="The cheapest first. A hazard counts interruptions per node-hour, with its interval.",
        empty="No offer is like that." if asked.words else "No provider told an offer yet.",
        left_out=left_out,
    )  # fmt: skip
    return Page(
        title="Market",
        over="What providers sell",
        lead=f"{pluralize(len(market.rows), 'offer')} at {clock(market.now)}.",
        blocks=(_silent(market), grid),
        filter_label="Which provider, region, machine or terms?",
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
        Cell(_interval(hazard), tone=_tone(hazard)),
        Cell(_source(hazard)),
        Cell("not told" if free is None else str(free), tone="bad" if free == 0 else "plain"),
        Cell(offer.unknown_because or "—"),
    )


def _tone(figure: Estimate | None) -> str:
    return "bad" if figure is None else "plain"


def _source(figure: Estimate | None) -> str:
    return "—" if figure is None else f"{figure.basis.value}: {figure.source}"


def _interval(hazard: Estimate | None) -> str:
    if hazard is None:
        return UNKNOWN_TEXT
    if hazard.low == hazard.high:
        return f"{hazard.value:.3g}"
    return f"{hazard.value:.3g} ({hazard.low:.2g}–{hazard.high:.2g})"


def _age(row: MarketRow) -> Cell:
    if row.price_age_s is None:
        return Cell("—")
    old = OLD_S is not None and row.price_age_s > OLD_S
    return Cell(seconds_text(max(0.0, row.price_age_s)), tone="bad" if old else "plain")


def _silent(market: MarketView) -> TableBlock:
    return table_block(
        "silent",
        "Providers that do not answer",
        make_columns("provider", "why"),
        tuple(
            (Cell(name, tone="bad"), Cell(why))
            for name, why in sorted(market.provider_errors.items())
        ),
        empty="All of them answer.",
    )
