"""Deadline strategies behind one protocol; a policy selects one by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from inspect import Parameter, signature

from costopt.domain.errors import SpecError
from costopt.domain.policy import Policy, StrategySpec
from costopt.domain.ports import Strategy
from costopt.strategies.shield import ShieldedStrategy

__all__ = ["STRATEGIES", "build", "check"]


def _adaptive(step_s: float = 600.0, pools: float = 6, memory_h: float = 72.0) -> Strategy:
    from costopt.strategies.adaptive import AdaptiveStrategy

    return AdaptiveStrategy(step_s=step_s, pools=int(pools), memory_h=memory_h)


def _on_demand() -> Strategy:
    from costopt.strategies.on_demand import OnDemandStrategy

    return OnDemandStrategy()


def _greedy_spot() -> Strategy:
    from costopt.strategies.greedy_spot import GreedySpotStrategy

    return GreedySpotStrategy()


def _uniform_progress(hysteresis: bool = True) -> Strategy:
    from costopt.strategies.uniform_progress import UniformProgressStrategy

    return UniformProgressStrategy(hysteresis)


def _milp(replan_s: float = 3600.0, gap: float = 0.01, time_limit_s: float = 5.0) -> Strategy:
    from costopt.strategies.milp import MilpStrategy

    return MilpStrategy(replan_s=replan_s, gap=gap, time_limit_s=time_limit_s)


STRATEGIES: Mapping[str, Callable[..., Strategy]] = {
    "adaptive": _adaptive,
    "greedy_spot": _greedy_spot,
    "milp": _milp,
    "on_demand": _on_demand,
    "uniform_progress": _uniform_progress,
}


def build(choice: StrategySpec) -> Strategy:
    """The strategy of a policy, shielded. Raises SpecError for an unknown name or parameter."""
    if choice.name not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        raise SpecError(f"unknown strategy {choice.name!r}", hint=f"use one of: {known}")
    make = STRATEGIES[choice.name]
    known_parameters = signature(make).parameters
    for name, value in choice.parameters.items():
        problem = _problem(known_parameters.get(name), value)
        if problem is not None:
            takes = ", ".join(f"{p.name} (default {p.default})" for p in known_parameters.values())
            raise SpecError(
                f"strategy {choice.name!r}: parameter {name!r} {problem}",
                hint=f"it takes {takes or 'no parameters'}",
            )
    return ShieldedStrategy(make(**choice.parameters))


def _problem(known: Parameter | None, value: float | str | bool) -> str | None:
    """What is wrong with a parameter's value, or None: flags are flags, no number is below 0."""
    if known is None:
        return "is unknown"
    if isinstance(known.default, bool):
        return None if isinstance(value, bool) else f"must be true or false, not {value!r}"
    if isinstance(value, (bool, str)) or not math.isfinite(value) or value < 0:
        return f"must be a number, 0 or more, not {value!r}"
    return None


def check(policy: Policy) -> None:
    """Whether the policy's strategy exists and can keep the policy's limits. Raises SpecError."""
    build(policy.strategy)
    if policy.limits.max_zone_share is not None and policy.strategy.name != "milp":
        raise SpecError(
            f"strategy {policy.strategy.name!r} puts a gang in one zone and cannot keep "
            "limits.max_zone_share",
            hint="use strategy milp, or leave the limit out",
        )
