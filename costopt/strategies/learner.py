"""Strategies that learn how long capacity lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from costopt.domain.market import Pool
from costopt.domain.ports import Strategy
from costopt.strategies.shield import Shielded

if TYPE_CHECKING:
    from costopt.market.lifetime import Lifetimes


@runtime_checkable
class Learner(Protocol):
    """A strategy that keeps estimates between its decisions."""

    lifetimes: Lifetimes
    """What it has learned."""


def lifetimes_of(strategy: Strategy) -> Lifetimes | None:
    """What a strategy, shielded or not, has learned; None for one that learns nothing."""
    inner = strategy.inner if isinstance(strategy, Shielded) else strategy
    return inner.lifetimes if isinstance(inner, Learner) else None


def learn_into(strategy: Strategy, lifetimes: Lifetimes) -> None:
    """Let a strategy, shielded or not, learn together with others; one that learns nothing, not."""
    inner = strategy.inner if isinstance(strategy, Shielded) else strategy
    if isinstance(inner, Learner):
        inner.lifetimes = lifetimes


def gang_key(job: str, pool: Pool, nodes: int) -> tuple[str, str, int]:
    """Under what a gang's capacity is learned: other jobs' nodes take from the same pool."""
    return job, str(pool), nodes
