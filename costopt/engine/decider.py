"""Who asks the strategies of all cohorts for what they decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from costopt.domain.ports import Strategy
from costopt.domain.view import Decision, View

StrategyRequest = tuple[Strategy, View]
"""A cohort's strategy, and what it sees."""


class DecisionScheduler(Protocol):
    """May ask some for less, or later, where there is not the time for all."""

    def decide(self, asked: Sequence[StrategyRequest]) -> list[Decision]:
        """One decision for each job of the views, in their order."""


class SequentialDecider:
    """Asks one after the other."""

    def decide(self, asked: Sequence[StrategyRequest]) -> list[Decision]:
        """What each decides."""
        return [d for strategy, view in asked for d in strategy.decide(view).decisions]
