"""Strategies that learn how long capacity lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from costopt.domain.ports import Strategy
from costopt.strategies.shield import ShieldedStrategy
from costopt.strategies.steady import FaultIsolatedStrategy

if TYPE_CHECKING:
    from costopt.market.lifetime import LifetimeModel
    from costopt.strategies.programs import ProgramCache


@runtime_checkable
class LearningStrategy(Protocol):
    """A strategy that keeps estimates between its decisions, and what it has solved for them."""

    lifetimes: LifetimeModel
    programs: ProgramCache


def lifetime_model(strategy: Strategy) -> LifetimeModel | None:
    """What a strategy, wrapped or not, has learned; None for one that learns nothing."""
    inner = _inner(strategy)
    return inner.lifetimes if isinstance(inner, LearningStrategy) else None


def share_lifetimes(strategy: Strategy, other: Strategy) -> None:
    """Let a strategy, wrapped or not, learn and solve together with another of its kind."""
    mine, its = _inner(strategy), _inner(other)
    if isinstance(mine, LearningStrategy) and isinstance(its, LearningStrategy):
        mine.lifetimes, mine.programs = its.lifetimes, its.programs


def share_programs(strategy: Strategy, programs: ProgramCache) -> None:
    """Let a strategy, wrapped or not, share programs; these are the same for any policy."""
    inner = _inner(strategy)
    if isinstance(inner, LearningStrategy):
        inner.programs = programs


def _inner(strategy: Strategy) -> Strategy:
    while isinstance(strategy, (ShieldedStrategy, FaultIsolatedStrategy)):
        strategy = strategy.inner
    return strategy
