"""Strategies that learn how long capacity lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from costopt.domain.ports import Strategy
from costopt.strategies.shield import Shielded
from costopt.strategies.steady import Steady

if TYPE_CHECKING:
    from costopt.market.lifetime import Lifetimes
    from costopt.strategies.programs import Programs


@runtime_checkable
class Learner(Protocol):
    """A strategy that keeps estimates between its decisions, and what it has solved for them."""

    lifetimes: Lifetimes
    programs: Programs


def lifetimes_of(strategy: Strategy) -> Lifetimes | None:
    """What a strategy, wrapped or not, has learned; None for one that learns nothing."""
    inner = _inner(strategy)
    return inner.lifetimes if isinstance(inner, Learner) else None


def learn_with(strategy: Strategy, other: Strategy) -> None:
    """Let a strategy, wrapped or not, learn and solve together with another of its kind."""
    mine, its = _inner(strategy), _inner(other)
    if isinstance(mine, Learner) and isinstance(its, Learner):
        mine.lifetimes, mine.programs = its.lifetimes, its.programs


def solve_with(strategy: Strategy, programs: Programs) -> None:
    """Let a strategy, wrapped or not, share programs; these are the same for any policy."""
    inner = _inner(strategy)
    if isinstance(inner, Learner):
        inner.programs = programs


def _inner(strategy: Strategy) -> Strategy:
    while isinstance(strategy, (Shielded, Steady)):
        strategy = strategy.inner
    return strategy
