"""At which price a launch is taken, and why one is not taken at all."""

from __future__ import annotations

from datetime import datetime

from costopt.domain.errors import BadRequestError, NoCapacityError
from costopt.domain.fleet import LaunchRequest
from costopt.domain.history import MarketHistory


def launch_price(market: MarketHistory, request: LaunchRequest, now: datetime) -> float:
    """Dollars per hour of one node. Raises BadRequestError, NoCapacityError (in a gap)."""
    pool = request.pool
    if pool not in market.pools:
        raise BadRequestError(
            f"pool {pool} is not in market {market.name!r}",
            hint="launch only in pools that offers() lists",
        )
    if request.nodes < 1:
        raise BadRequestError(f"{pool}: a launch of {request.nodes} nodes")
    state = market.pools[pool].at(now)
    if state is None or state.nodes_available is None or state.price_usd_per_hour is None:
        raise NoCapacityError(
            f"{pool}: the market {market.name!r} records no capacity or no price at "
            f"{now:%Y-%m-%d %H:%M:%S} UTC",
            hint="a gap in the record is not guessed over; try another pool or later",
        )
    return state.price_usd_per_hour
