"""A sampled future as a recorded market, on which the engine can be replayed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

import numpy as np

from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.market import Offer, Pool
from costopt.market.history_file import compress_samples
from costopt.planning.forecast.futures import ANY_NODES, Futures


def history_of(
    futures: Futures, sample: int, offers: Iterable[Offer], now: datetime, name: str
) -> MarketHistory:
    """Return one of the futures as a market that begins ``now``, on the futures' grid.

    ``offers`` are at the present prices, without the account's terms. Those that the futures do not
    cover stay as they are.
    """
    ticks = futures.nodes.shape[2]
    ends_at = now + ticks * timedelta(seconds=futures.tick_s)
    rows = {pool: row for row, pool in enumerate(futures.pools)}
    pools: dict[Pool, PoolHistory] = {}
    for offer in offers:
        pool, price = offer.pool, offer.price_usd_per_hour
        usd = None if price is None else price.value
        if pool in rows:
            states = compress_samples(_states(futures, sample, rows[pool], usd, now))
        else:
            nodes = ANY_NODES if offer.nodes_available is None else offer.nodes_available
            states = (MarketState(now, nodes, usd),)
        pools[pool] = PoolHistory(pool, states, ends_at)
    return MarketHistory(name, pools, futures.tick_s, futures.source)


def _states(
    futures: Futures, sample: int, row: int, usd: float | None, now: datetime
) -> Iterator[MarketState]:
    nodes = futures.nodes[sample, row]
    ratio = np.broadcast_to(futures.price, futures.nodes.shape)[sample, row]
    for tick in range(len(nodes)):
        at = now + tick * timedelta(seconds=futures.tick_s)
        yield MarketState(at, int(nodes[tick]), None if usd is None else usd * float(ratio[tick]))
