"""The default strategy with the lifetimes' law of the very record; for replays only.

It decides by the program of the default strategy, but the rates at which capacity goes and comes
back are those of the whole record, pool by pool and by age, and not learned as the run goes. Its
distance to the default strategy is what is lost by not knowing them, and that to the hindsight
optimum what no law of lifetimes tells.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from costopt.domain.history import MarketHistory, PoolHistory
from costopt.domain.ports import Strategy
from costopt.market.lifetime import AgeRates, LifetimeModel, prior_rates
from costopt.strategies.adaptive.strategy import AdaptiveStrategy

PRIOR_ENDINGS = 1.0
"""Endings per class of age that the shipped prior weighs as much as, where the record has few."""

Period = tuple[bool, float, bool]
"""Whether there was capacity, for how many hours, and whether the end was seen."""


def known_lifetimes(market: MarketHistory) -> Strategy:
    """Return the default strategy that knows the rates of this record."""
    return AdaptiveStrategy(lifetimes=RecordedLifetimes(market))


class RecordedLifetimes(LifetimeModel):
    """Rates and shares of a whole record; the age of the present period is observed, as ever.

    Keys are those of ``lifetime_key``; a pool that is not in the record has the prior's rates.
    """

    def __init__(self, market: MarketHistory) -> None:
        super().__init__()
        self._histories = {str(pool): history for pool, history in market.pools.items()}
        self._until = market.ends_at
        self._known: dict[Hashable, tuple[AgeRates, float]] = {}

    def rates(self, key: Hashable) -> AgeRates:
        """Return the record's rates."""
        return self._law(key)[0]

    def scenarios(self, keys: Sequence[Hashable]) -> Iterator[tuple[float, tuple[AgeRates, ...]]]:
        """Yield the record's rates, which are certain."""
        yield 1.0, tuple(map(self.rates, keys))

    def availability(self, key: Hashable) -> float:
        """Return the share of the record with capacity."""
        return self._law(key)[1]

    def _law(self, key: Hashable) -> tuple[AgeRates, float]:
        if key not in self._known:
            match key:
                case (*_, str(pool), int(nodes)) if pool in self._histories:
                    self._known[key] = recorded_law(self._histories[pool], nodes, self._until)
                case _:
                    self._known[key] = self.prior, super().availability(key)
        return self._known[key]


def recorded_law(history: PoolHistory, nodes: int, until: datetime) -> tuple[AgeRates, float]:
    """Return the rates for a gang of ``nodes`` by age, and its share of the observed time.

    The rate of a class of age is the endings seen in it over the hours spent in it, the shipped
    prior counting as ``PRIOR_ENDINGS``.
    """
    prior = prior_rates()
    endings = {up: [0] * len(prior.from_h) for up in (False, True)}
    hours = {up: [0.0] * len(prior.from_h) for up in (False, True)}
    bounds = list(pairwise((*prior.from_h, math.inf)))
    for up, lasted_h, ended in _periods(history, nodes, until):
        for of_age, (begin_h, end_h) in enumerate(bounds):
            hours[up][of_age] += max(0.0, min(lasted_h, end_h) - begin_h)
            endings[up][of_age] += ended and begin_h < lasted_h <= end_h
    rates = (
        tuple(
            (PRIOR_ENDINGS + seen) / (PRIOR_ENDINGS / rate + spent_h)
            for seen, spent_h, rate in zip(endings[up], hours[up], prior.of(up), strict=True)
        )
        for up in (True, False)
    )
    up_h, down_h = sum(hours[True]), sum(hours[False])
    return AgeRates(prior.from_h, *rates), up_h / (up_h + down_h) if up_h + down_h else 0.0


def _periods(history: PoolHistory, nodes: int, until: datetime) -> Iterator[Period]:
    """Periods with and without room for the gang; a gap cuts one off."""
    was_up: bool | None = None
    began_at = history.states[0].starts_at
    hour = timedelta(hours=1)
    for state in history.states:
        if state.starts_at >= until:
            break
        is_up = None if state.nodes_available is None else state.nodes_available >= nodes
        if is_up == was_up:
            continue
        if was_up is not None:
            yield was_up, (state.starts_at - began_at) / hour, is_up is not None
        was_up, began_at = is_up, state.starts_at
    if was_up is not None and until > began_at:
        yield was_up, (until - began_at) / hour, False
