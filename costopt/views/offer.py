"""An offer of a provider, as a MarketRow of the daemon."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor, log10
from typing import Any

from costopt.domain.estimate import Estimate
from costopt.domain.policy import Limits
from costopt.formatting import UNKNOWN_TEXT, pool_text, seconds_text, usd_text
from costopt.render.table import Column, value_at

MAX_AGE_S = Limits().max_price_age_s


def hazard_text(hazard: Estimate) -> str:
    """Return interruptions per node-hour with their interval."""
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


def _unknown_tone(path: str) -> Callable[[Any], str]:
    return lambda row: "bad" if value_at(row, path) is None else "plain"


def _basis(figure: Estimate) -> str:
    return f"{figure.basis.value}: {figure.source}"


PRICE, HAZARD = "offer.price_usd_per_hour", "offer.hazard_per_hour"
OFFER_COLUMNS = (
    Column("pool", "Pool", pool_text, value="offer.pool"),
    Column("price", "Price", lambda price: usd_text(price.value), right=True, value=PRICE,
           unknown=UNKNOWN_TEXT, tone=_unknown_tone(PRICE)),
    Column("price_basis", "Price basis", _basis, value=PRICE),
    Column(
        "price_age_s", "Price age", lambda age_s: seconds_text(max(0.0, age_s)), right=True,
        tone=lambda row: "bad" if MAX_AGE_S and (row.price_age_s or 0.0) > MAX_AGE_S else "plain",
    ),
    Column("hazard", "Interruptions per node-hour", hazard_text, right=True, value=HAZARD,
           unknown=UNKNOWN_TEXT, tone=_unknown_tone(HAZARD)),
    Column("hazard_basis", "Interruptions basis", _basis, value=HAZARD),
    Column("available", "Available", right=True, value="offer.nodes_available",
           unknown=UNKNOWN_TEXT,
           tone=lambda row: "bad" if row.offer.nodes_available == 0 else "plain"),
    Column("note", "Note", value=lambda row: row.offer.unknown_because or None),
)  # fmt: skip
ERROR_COLUMNS = (Column("provider", "Provider", tone="bad"), Column("error", "Error"))
"""Columns of providers that cannot be reached."""
