"""A policy's strategy, by name and parameters."""

from __future__ import annotations

import pytest

from costopt.domain.errors import SpecError
from costopt.domain.policy import StrategyChoice
from costopt.strategies import STRATEGIES, build
from costopt.strategies.milp import Milp
from costopt.strategies.shield import Shielded
from costopt.strategies.uniform_progress import UniformProgress


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_comes_shielded(name: str) -> None:
    built = build(StrategyChoice(name))
    assert isinstance(built, Shielded)
    assert not isinstance(built.inner, Shielded)


def test_parameters_reach_the_strategy() -> None:
    built = build(StrategyChoice("uniform_progress", {"hysteresis": False}))
    assert isinstance(built, Shielded)
    assert isinstance(built.inner, UniformProgress)
    assert built.inner.hysteresis is False
    planner = build(StrategyChoice("milp", {"replan_s": 60, "gap": 0, "time_limit_s": 1.5}))
    assert isinstance(planner, Shielded)
    assert isinstance(planner.inner, Milp)
    assert (planner.inner.replan_s, planner.inner.gap, planner.inner.time_limit_s) == (60, 0, 1.5)


@pytest.mark.parametrize(
    ("choice", "message", "hint"),
    [
        (StrategyChoice("magic"), "unknown strategy 'magic'", "uniform_progress"),
        (StrategyChoice("milp", {"speed": 1}), "'speed' is unknown", "replan_s (default 3600"),
        (StrategyChoice("on_demand", {"x": 1}), "'x' is unknown", "no parameters"),
        (StrategyChoice("milp", {"gap": "1%"}), "'gap' must be a number", "gap"),
        (StrategyChoice("milp", {"gap": -0.1}), "0 or more", "gap"),
        (StrategyChoice("milp", {"gap": True}), "number", "gap"),
        (StrategyChoice("milp", {"replan_s": float("inf")}), "number", "replan_s"),
        (
            StrategyChoice("uniform_progress", {"hysteresis": "no"}),
            "must be true or false, not 'no'",
            "hysteresis",
        ),
    ],
)
def test_a_wrong_choice_says_what_there_is(choice: StrategyChoice, message: str, hint: str) -> None:
    with pytest.raises(SpecError, match="strategy") as caught:
        build(choice)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
