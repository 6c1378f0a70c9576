"""Samples of a pool become states between changes."""

from __future__ import annotations

from collections.abc import Iterable

from costopt.domain.history import MarketState

UNLIMITED_NODES = 10_000
"""Capacity of a pool that is never short, such as on-demand in a record that lists none."""


def compress_samples(samples: Iterable[MarketState]) -> tuple[MarketState, ...]:
    """``samples`` in order of time without those that change nothing."""
    states: list[MarketState] = []
    for sample in samples:
        if not states or _differ(states[-1], sample):
            states.append(sample)
    return tuple(states)


def _differ(a: MarketState, b: MarketState) -> bool:
    return a.nodes_available != b.nodes_available or a.price_usd_per_hour != b.price_usd_per_hour
