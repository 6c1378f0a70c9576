"""Several records become one market."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from costopt.domain.errors import MarketError
from costopt.domain.history import MarketHistory, PoolHistory
from costopt.domain.market import Pool


def merge_histories(name: str, histories: Sequence[MarketHistory]) -> MarketHistory:
    """The pools of all ``histories``. Raises MarketError where two record a pool differently.

    The grid survives where all records lie on the same one; else the result is event data, for
    which nothing is promised between changes.
    """
    if not histories:
        raise MarketError(f"market {name!r}: nothing to merge", code="empty")
    pools: dict[Pool, PoolHistory] = {}
    for history in histories:
        for pool, recorded in history.pools.items():
            if pools.setdefault(pool, recorded) != recorded:
                raise MarketError(
                    f"market {name!r}: {pool} is recorded twice, and differently in "
                    f"{history.name!r}",
                    hint="merge records of different pools, or keep them as markets of their own",
                    code="contradiction",
                )
    return MarketHistory(
        name=name,
        pools=pools,
        tick_s=_common_tick_s(histories),
        source="; ".join(dict.fromkeys(history.source for history in histories)),
    )


def _common_tick_s(histories: Iterable[MarketHistory]) -> float | None:
    ticks = {history.tick_s for history in histories}
    tick_s = ticks.pop()
    if ticks or tick_s is None:
        return None
    starts = [recorded.starts_at for h in histories for recorded in h.pools.values()]
    tick = timedelta(seconds=tick_s)
    aligned = all((start - starts[0]) % tick == timedelta(0) for start in starts)
    return tick_s if aligned else None
