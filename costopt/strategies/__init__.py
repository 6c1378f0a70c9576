"""Deadline strategies behind one protocol; a policy selects one by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from costopt.domain.errors import SpecError
from costopt.domain.policy import StrategyChoice
from costopt.domain.ports import Strategy
from costopt.strategies.shield import Shielded

__all__ = ["STRATEGIES", "build"]

Parameters = Mapping[str, float | int | str | bool]


def _on_demand() -> Strategy:
    from costopt.strategies.on_demand import OnDemand

    return OnDemand()


def _greedy_spot() -> Strategy:
    from costopt.strategies.greedy_spot import GreedySpot

    return GreedySpot()


def _uniform_progress(hysteresis: bool = True) -> Strategy:
    from costopt.strategies.uniform_progress import UniformProgress

    return UniformProgress(hysteresis)


def _milp(replan_s: float = 3600.0, gap: float = 0.01, time_limit_s: float = 5.0) -> Strategy:
    from costopt.strategies.milp import Milp

    return Milp(replan_s=replan_s, gap=gap, time_limit_s=time_limit_s)


STRATEGIES: Mapping[str, Callable[..., Strategy]] = {
    "greedy_spot": _greedy_spot,
    "milp": _milp,
    "on_demand": _on_demand,
    "uniform_progress": _uniform_progress,
}


def build(choice: StrategyChoice) -> Strategy:
    """The strategy of a policy, shielded. Raises SpecError for an unknown name or parameter."""
    if choice.name not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        raise SpecError(f"unknown strategy {choice.name!r}", hint=f"use one of: {known}")
    try:
        return Shielded(STRATEGIES[choice.name](**choice.parameters))
    except TypeError as error:
        raise SpecError(f"strategy {choice.name!r}: {error}") from None
