"""The registry of strategies: it finds them by entry point; a policy selects one by name."""

from __future__ import annotations

import math
import sys
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, distribution, entry_points
from inspect import Parameter, signature
from pathlib import Path

from costopt.domain.errors import SpecError
from costopt.domain.policy import Policy, StrategySpec
from costopt.domain.ports import Strategy
from costopt.strategies.shield import ShieldedStrategy

GROUP = "costopt.strategies"
"""The entry points: each names a class, or a function that returns a strategy."""

PROJECT = "costopt-spot"
CHECKOUT = Path(__file__).parents[2] / "pyproject.toml"

StrategyFactory = Callable[..., Strategy]


def strategy_names() -> tuple[str, ...]:
    """Return the names of all strategies: costopt's own, then those of other packages."""
    own = _own()
    return (*sorted(own), *sorted(_installed(tuple(sys.path)).keys() - own.keys()))


def is_own(name: str) -> bool:
    """Whether costopt brings the strategy, and no other package does."""
    return name in _own()


def strategy_parameters(name: str) -> Mapping[str, Parameter]:
    """Return the parameters that a policy may set: those whose default is a number, text or flag.

    Raise SpecError if the strategy is unknown.
    """
    known = signature(find_factory(name)).parameters
    return {
        key: parameter
        for key, parameter in known.items()
        if isinstance(parameter.default, (bool, int, float, str))
    }


def is_joint(name: str) -> bool:
    """Return whether one strategy decides all jobs of a policy together.

    Raise SpecError if the strategy is unknown or cannot be imported.
    """
    return bool(getattr(find_factory(name), "joint", False))


def joins_tenants(name: str) -> bool:
    """Return whether one strategy decides the jobs of all tenants that follow a policy.

    Raise SpecError if the strategy is unknown or cannot be imported.
    """
    return bool(getattr(find_factory(name), "joins_tenants", False))


def build(choice: StrategySpec) -> Strategy:
    """Return the strategy of a policy, shielded.

    Raise SpecError if a name or parameter is unknown, or the strategy cannot be made.
    """
    make = find_factory(choice.name)
    known_parameters = strategy_parameters(choice.name)
    for name, value in choice.parameters.items():
        problem = _problem(known_parameters.get(name), value)
        if problem is not None:
            takes = ", ".join(f"{p.name} (default {p.default})" for p in known_parameters.values())
            raise SpecError(
                f"strategy {choice.name!r}: parameter {name!r} {problem}",
                hint=f"it takes {takes or 'no parameters'}",
            )
    try:
        made = make(**choice.parameters)
    except Exception as error:
        raise _defect(choice.name, error) from error
    return shield(made)


def shield(strategy: Strategy) -> ShieldedStrategy:
    """Return the strategy behind the shield, once."""
    return strategy if isinstance(strategy, ShieldedStrategy) else ShieldedStrategy(strategy)


def check(policy: Policy) -> None:
    """Raise SpecError unless the policy's strategy exists and can keep the policy's limits."""
    build(policy.strategy)
    spreads = getattr(find_factory(policy.strategy.name), "spreads_zones", False)
    if policy.limits.max_zone_share is not None and not spreads:
        raise SpecError(
            f"strategy {policy.strategy.name!r} puts a gang in as few zones as have room and "
            "cannot keep limits.max_zone_share",
            hint="use strategy milp, or leave the limit out",
        )


def find_factory(name: str) -> StrategyFactory:
    """Return what makes the strategy of this name.

    Raise SpecError if no package brings one, or the package that does cannot be imported.
    """
    entry = _own().get(name) or _installed(tuple(sys.path)).get(name)
    if entry is None:
        raise SpecError(
            f"unknown strategy {name!r}", hint=f"use one of: {', '.join(strategy_names())}"
        )
    try:
        factory: StrategyFactory = entry.load()
    except Exception as error:
        raise _defect(name, error) from error
    if not callable(factory):
        raise SpecError(
            f"strategy {name!r}: {entry.value} is not a class or function",
            hint="name one that returns an object with a method decide(view)",
        )
    return factory


@cache
def _own() -> Mapping[str, EntryPoint]:
    """costopt's own entry points; in a checkout those of its pyproject.toml, which may be newer
    than what was installed."""
    if CHECKOUT.is_file():
        project = tomllib.loads(CHECKOUT.read_text(encoding="utf-8")).get("project", {})
        if project.get("name") == PROJECT:
            rows = project["entry-points"][GROUP]
            return {name: EntryPoint(name, value, GROUP) for name, value in rows.items()}
    return {entry.name: entry for entry in distribution(PROJECT).entry_points.select(group=GROUP)}


@cache
def _installed(_path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """Entry points of every package on this search path."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _problem(known: Parameter | None, value: float | str | bool) -> str | None:
    """What is wrong with a parameter's value, or None: flags are flags, no number is below 0."""
    if known is None:
        return "is unknown"
    if isinstance(known.default, bool):
        return None if isinstance(value, bool) else f"must be true or false, not {value!r}"
    if isinstance(known.default, str):
        return None if isinstance(value, str) else f"must be text, not {value!r}"
    if isinstance(value, (bool, str)) or not math.isfinite(value) or value < 0:
        return f"must be a number, 0 or more, not {value!r}"
    return None


def _defect(name: str, error: Exception) -> SpecError:
    return SpecError(
        f"strategy {name!r} cannot be made: {type(error).__name__}: {error}",
        hint="correct the package that brings it, or use another strategy",
    )
