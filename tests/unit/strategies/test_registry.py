"""Strategies by name and parameters, and those of other packages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from costopt.backtesting.trial import BacktestConfig, Trial, TrialKeys, Window
from costopt.cli.main import cli
from costopt.daemon.loop.strategy_pool import StrategyPool
from costopt.domain.control import Submission
from costopt.domain.errors import SpecError
from costopt.domain.policy import Limits, Policy, StrategySpec
from costopt.domain.view import Decision, Desired, View
from costopt.market.hazard import LearnedHazard
from costopt.strategies import build, check, is_joint, strategy_names
from costopt.strategies.fault_isolation import FaultIsolatedStrategy
from costopt.strategies.milp import MilpStrategy
from costopt.strategies.shield import ShieldedStrategy
from costopt.strategies.uniform_progress import UniformProgressStrategy
from tests.support.cant_be_late import NoHazard
from tests.support.engine_fixtures import SAFE, SPOT_A, Machines, Powers, always, rules
from tests.support.installed_strategy import MINE, install_strategy
from tests.support.market_fixtures import T0, market, training_job

OWN = ("adaptive", "greedy_spot", "milp", "on_demand", "priced", "uniform_progress")


JOB = training_job(4 * 3600.0, deadline_s=8 * 3600.0)


MARKET = market(always(SPOT_A, 9, 2.0), always(SAFE, 9, 8.0))


def test_costopt_s_own_are_entry_points_of_its_project() -> None:
    assert strategy_names()[: len(OWN)] == OWN
    assert [name for name in OWN if is_joint(name)] == ["milp", "priced"]


def test_another_package_s_strategy_is_used_by_a_policy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install_strategy(monkeypatch, tmp_path, "mine", "their_module:Mine")
    (tmp_path / "p.yaml").write_text(
        "name: theirs\nstrategy: {name: mine, parameters: {patience: 3, label: theirs}}\n"
    )
    done = CliRunner().invoke(cli, ["validate", str(tmp_path / "p.yaml")])
    assert done.exit_code == 0, done.output
    made = build(StrategySpec("mine", {"patience": 3, "label": "theirs"}))
    assert isinstance(made, ShieldedStrategy)
    assert (vars(made.inner)["patience"], vars(made.inner)["label"]) == (3, "theirs")
    assert "mine" in strategy_names()
    assert is_joint("mine")


def test_the_documented_strategy_keeps_the_deadline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    guide = (Path(__file__).parents[3] / "docs/strategies.md").read_text(encoding="utf-8")
    source = guide.split("```python\n", 1)[1].split("```", 1)[0]
    assert "class PatientStrategy:" in source
    install_strategy(monkeypatch, tmp_path, "patient", "patient:PatientStrategy", source)
    policy = replace(rules("patient"), strategy=StrategySpec("patient", {"usd_per_hour": 3.0}))
    score = _config().score(Trial(Window(MARKET.name, JOB), policy))
    assert (score.on_time, score.strategy_failure) == (True, None)
    assert score.usd == pytest.approx(
        _config().score(Trial(Window(MARKET.name, JOB), rules("greedy_spot"))).usd
    )


def test_an_unknown_name_is_refused_with_the_list_of_known_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install_strategy(monkeypatch, tmp_path, "mine", "their_module:Mine")
    with pytest.raises(SpecError, match="'yours'") as caught:
        check(Policy("p", strategy=StrategySpec("yours")))
    for name in (*OWN, "mine"):
        assert name in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("value", "source", "parameters"),
    [
        ("broken_import:Mine", "import nothing_of_this_name\n", {}),
        ("no_such_class:Mine", "", {}),
        ("not_callable:Mine", "Mine = 3\n", {}),
        ("raises:Mine", "def Mine():\n    raise OSError('no')\n", {}),
        ("other_parameter:Mine", MINE, {"history": 3}),
        ("not_text:Mine", MINE, {"label": 3}),
    ],
)
def test_a_strategy_that_cannot_be_made_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    value: str,
    source: str,
    parameters: dict[str, int],
) -> None:
    install_strategy(monkeypatch, tmp_path, "mine", value, source)
    with pytest.raises(SpecError, match="'mine'"):
        check(Policy("p", strategy=StrategySpec("mine", dict(parameters))))


def test_no_package_replaces_one_of_costopt_s_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install_strategy(monkeypatch, tmp_path, "on_demand", "their_module:Mine")
    made = build(StrategySpec("on_demand"))
    assert isinstance(made, ShieldedStrategy)
    assert type(made.inner).__module__ == "costopt.strategies.baselines"


def test_a_joint_strategy_decides_a_tenant_s_jobs_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Others are made once for each job."""
    install_strategy(monkeypatch, tmp_path, "mine", "their_module:Mine")
    pool = StrategyPool(tmp_path, LearnedHazard({}), T0)
    kinds = {
        name: type(
            pool.terms(
                Policy("p", strategy=StrategySpec(name)),
                Submission("a", "t", 0, "", f"name: {name}", "/", T0, "me"),
                T0,
            ).strategy
        )
        for name in ("mine", "greedy_spot")
    }
    assert kinds["mine"] is FaultIsolatedStrategy
    assert kinds["greedy_spot"] is not FaultIsolatedStrategy


def test_zone_shares_need_a_strategy_that_spreads_gangs() -> None:
    limits = Limits(max_zone_share=0.5)
    check(replace(rules("milp"), limits=limits))
    with pytest.raises(SpecError, match="max_zone_share"):
        check(replace(rules("adaptive"), limits=limits))


class Idle:
    """Launches nothing, ever: only the shield keeps the deadline."""

    def decide(self, view: View) -> Desired:
        return Desired(tuple(Decision(each.job.name, (), "idle") for each in view.jobs))


def _config(**strategies: type[Idle]) -> BacktestConfig:
    markets = {MARKET.name: MARKET}
    return BacktestConfig(markets, Machines(), Powers, NoHazard, strategies=strategies)


def test_a_backtest_takes_strategies_from_python_behind_the_shield() -> None:
    trial = Trial(Window(MARKET.name, JOB), rules("mine"))
    score = _config(mine=Idle).score(trial)
    assert score.on_time
    assert score.strategy_failure is None
    assert (score.usd or 0) > 0
    with pytest.raises(SpecError, match="mine"):
        _config().score(trial)


def test_a_score_is_known_again_only_for_the_same_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trial = Trial(Window(MARKET.name, JOB), rules("mine"))
    given = [TrialKeys(_config(mine=Idle), "").of(trial) for _ in range(2)]
    install_strategy(monkeypatch, tmp_path, "mine", "one_module:Mine")
    installed = [TrialKeys(_config(), "").of(trial) for _ in range(2)]
    (tmp_path / "one_module.py").write_text(f"{MINE}\n# changed\n", encoding="utf-8")
    changed = TrialKeys(_config(), "").of(trial)
    assert given[0] == given[1]
    assert installed[0] == installed[1]
    assert len({*given, *installed, changed}) == 3


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
