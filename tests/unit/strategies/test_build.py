"""A policy's strategy, by name and parameters."""

from __future__ import annotations

import pytest

from costopt.domain.errors import SpecError
from costopt.domain.policy import StrategySpec
from costopt.strategies import build, strategy_names
from costopt.strategies.milp import MilpStrategy
from costopt.strategies.shield import ShieldedStrategy
from costopt.strategies.uniform_progress import UniformProgressStrategy


@pytest.mark.parametrize("name", strategy_names())
def test_every_strategy_comes_shielded(name: str) -> None:
    built = build(StrategySpec(name))
    assert isinstance(built, ShieldedStrategy)
    assert not isinstance(built.inner, ShieldedStrategy)


def test_parameters_reach_the_strategy() -> None:
    built = build(StrategySpec("uniform_progress", {"hysteresis": False}))
    assert isinstance(built, ShieldedStrategy)
    assert isinstance(built.inner, UniformProgressStrategy)
    assert built.inner.hysteresis is False
    planner = build(StrategySpec("milp", {"replan_s": 60, "gap": 0, "time_limit_s": 1.5}))
    assert isinstance(planner, ShieldedStrategy)
    assert isinstance(planner.inner, MilpStrategy)
    assert (planner.inner.replan_s, planner.inner.gap, planner.inner.time_limit_s) == (60, 0, 1.5)


@pytest.mark.parametrize(
    ("choice", "message", "hint"),
    [
        (StrategySpec("magic"), "unknown strategy 'magic'", "uniform_progress"),
        (StrategySpec("milp", {"speed": 1}), "'speed' is unknown", "replan_s (default 3600"),
        (StrategySpec("on_demand", {"x": 1}), "'x' is unknown", "no parameters"),
        (StrategySpec("milp", {"gap": "1%"}), "'gap' must be a number", "gap"),
        (StrategySpec("milp", {"gap": -0.1}), "0 or more", "gap"),
        (StrategySpec("milp", {"gap": True}), "number", "gap"),
        (StrategySpec("milp", {"replan_s": float("inf")}), "number", "replan_s"),
        (
            StrategySpec("uniform_progress", {"hysteresis": "no"}),
            "must be true or false, not 'no'",
            "hysteresis",
        ),
    ],
)
def test_a_wrong_choice_says_what_there_is(choice: StrategySpec, message: str, hint: str) -> None:
    with pytest.raises(SpecError, match="strategy") as caught:
        build(choice)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
