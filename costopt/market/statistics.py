"""Statistics of each pool of a market history, for ``costopt market show`` and for priors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.market import UNINTERRUPTIBLE_HAZARD, Pool
from costopt.market.hazard import JEFFREYS_SHAPE, Z_95, posterior


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """One pool over its whole record; None where the record does not determine a figure.

    ``coverage`` is the share of the record in which capacity was observed, ``availability`` the
    share of that in which there was any. ``hazard_per_hour`` counts interruptions per hour up.
    ``mean_up_s`` is the time up per interruption. The mean price is weighted by time.
    """

    pool: Pool
    recorded_s: float
    coverage: float
    availability: Estimate | None
    interruptions: int
    hazard_per_hour: Estimate | None
    mean_up_s: float | None
    min_usd_per_hour: float | None
    mean_usd_per_hour: float | None
    max_usd_per_hour: float | None


def history_statistics(history: MarketHistory) -> dict[Pool, PoolStatistics]:
    """Statistics of every pool of ``history``."""
    return {pool: pool_statistics(recorded) for pool, recorded in history.pools.items()}


def pool_statistics(recorded: PoolHistory) -> PoolStatistics:
    """Statistics of one pool."""
    stretches = list(_stretches(recorded))
    recorded_s = sum(seconds for _, seconds in stretches)
    observed_s = sum(s for state, s in stretches if state.nodes_available is not None)
    up_s = sum(s for state, s in stretches if state.nodes_available)
    interruptions, recoveries = _changes(recorded)
    prices = [(state.price_usd_per_hour, s) for state, s in stretches]
    priced = [(price, s) for price, s in prices if price is not None]
    return PoolStatistics(
        pool=recorded.pool,
        recorded_s=recorded_s,
        coverage=observed_s / recorded_s,
        availability=_availability(recorded, up_s, observed_s, interruptions + recoveries),
        interruptions=interruptions,
        hazard_per_hour=_hazard(recorded, interruptions, up_s),
        mean_up_s=up_s / interruptions if interruptions else None,
        min_usd_per_hour=min((price for price, _ in priced), default=None),
        mean_usd_per_hour=_mean(priced),
        max_usd_per_hour=max((price for price, _ in priced), default=None),
    )


def _stretches(recorded: PoolHistory) -> Iterator[tuple[MarketState, float]]:
    ends = [state.starts_at for state in recorded.states[1:]] + [recorded.ends_at]
    for state, ends_at in zip(recorded.states, ends, strict=True):
        yield state, (ends_at - state.starts_at).total_seconds()


def _changes(recorded: PoolHistory) -> tuple[int, int]:
    """How often capacity was seen to go, and to come back; what a gap hides is not counted."""
    interruptions = recoveries = 0
    before: int | None = None
    for state in recorded.states:
        now = state.nodes_available
        if before is not None and now is not None:
            interruptions += int(before > 0 and now == 0)
            recoveries += int(before == 0 and now > 0)
        before = now
    return interruptions, recoveries


def _hazard(recorded: PoolHistory, interruptions: int, up_s: float) -> Estimate | None:
    if not recorded.pool.capacity_type.is_interruptible:
        return UNINTERRUPTIBLE_HAZARD
    if up_s <= 0:
        return None
    return posterior(
        JEFFREYS_SHAPE, 0.0, interruptions, up_s / 3600, "the record", recorded.ends_at
    )


def _availability(
    recorded: PoolHistory, up_s: float, observed_s: float, changes: int
) -> Estimate | None:
    """The share up, with Wilson's interval (JASA 22, 1927) over the stretches seen.

    Neighbouring instants are not independent, so the number of observations is the number of
    stretches between changes, not that of samples; the interval is rough.
    """
    if observed_s <= 0:
        return None
    share, n = up_s / observed_s, changes + 1
    spread = Z_95**2 / n
    centre = (share + spread / 2) / (1 + spread)
    half = math.sqrt(share * (1 - share) * spread + spread**2 / 4) / (1 + spread)
    return Estimate(
        value=share,
        low=max(min(centre - half, share), 0.0),
        high=min(max(centre + half, share), 1.0),
        basis=Basis.MEASURED,
        source="the record",
        observed_at=recorded.ends_at,
    )


def _mean(priced: list[tuple[float, float]]) -> float | None:
    seconds = sum(s for _, s in priced)
    return sum(price * s for price, s in priced) / seconds if seconds else None
