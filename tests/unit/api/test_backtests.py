"""costopt.backtest: results, a strategy of the caller's own, and refused arguments."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import costopt as co
from costopt.api.backtests import ScoredTrial
from costopt.spec import STARTER_JOB
from tests.support.cheapest_spot import CheapestSpot
from tests.support.errors import has_code
from tests.support.market_fixtures import ON_DEMAND, SPOT, T0, pool_history
from tests.support.market_fixtures import market as market_of

HOUR = 3600
TRAIN = """\
name: train
work: {amount: 360000, unit: samples}
deadline: 8h
resources: {gpu_models: [V100], min_nodes: 1, max_nodes: 1}
throughput: {points: [{gpu: V100, units_per_s: 30}]}
checkpoint: {uri: checkpoints, size_gib: 1, save: 60s, restore: 60s, interval: 30m}
startup: 60s
"""
BASELINES = ["on_demand", "greedy_spot", "uniform_progress"]


@pytest.fixture(scope="module")
def market() -> co.Market:
    """Spot goes after each 80 min, for 10 min; on demand is always there."""
    up = [(start + up_s, nodes, 1.0) for start in range(0, 24 * HOUR, 5400)
          for up_s, nodes in ((0, 1), (4800, 0))]  # fmt: skip
    pools = pool_history(SPOT, up, 24 * HOUR), pool_history(ON_DEMAND, [(0, 100, 3.0)], 24 * HOUR)
    return co.Market(market_of(*pools, tick_s=600.0))


@pytest.fixture
def job(tmp_path: Path) -> co.Job:
    path = tmp_path / "job.yaml"
    path.write_text(TRAIN)
    return co.load_job(path, now=T0)


def labels(result: co.BacktestResult) -> list[str]:
    return [each.policy for each in result.summaries]


@pytest.mark.slow
def test_policies_beside_baselines_and_the_optimum(job: co.Job, market: co.Market) -> None:
    result = co.backtest(job, ["cheapest", co.load_policy("balanced")], market, starts=3)
    assert labels(result) == [*BASELINES, "cheapest", "balanced", "hindsight optimum"]
    assert len(result.scores) == 6 * 3
    assert all(each.runs == 3 and each.misses == 0 for each in result.summaries)
    usd = {each.policy: each.mean_usd or 0.0 for each in result.summaries}
    assert 0 < usd["hindsight optimum"] <= usd["cheapest"] < usd["on_demand"]


def test_summaries_by_deadline(job: co.Job, market: co.Market) -> None:
    result = co.backtest(
        job, "cheapest", market, deadlines=[7 * HOUR, 8 * HOUR], by="deadline", startups=[30]
    )
    assert {each.group for each in result.summaries} == {"7 h", "8 h"}


@pytest.mark.process
def test_an_own_strategy_gives_the_same_in_several_processes(
    job: co.Job, market: co.Market
) -> None:
    own = {"mine": CheapestSpot}
    alone = co.backtest(job, "cheapest", market, starts=2, strategies=own)
    assert labels(alone) == [*BASELINES, "cheapest", "mine", "hindsight optimum"]
    together = co.backtest(job, "cheapest", market, starts=2, strategies=own, processes=2)
    assert together.summaries == alone.summaries
    mine = next(each for each in alone.summaries if each.policy == "mine")
    assert mine.misses == 0
    assert (mine.interruptions or 0) > 0


@pytest.mark.slow
def test_the_place_of_an_own_strategy(job: co.Job, market: co.Market) -> None:
    own = {"mine": CheapestSpot, "yours": CheapestSpot}
    placed = co.backtest(job, ["mine", "balanced"], market, strategies=own)
    assert labels(placed)[3:] == ["mine", "balanced", "yours", "hindsight optimum"]
    alone = co.backtest(job, "mine", market, strategies={"mine": CheapestSpot})
    policy = replace(co.load_policy("cheapest"), name="careful", strategy=_spec("mine"))
    named = co.backtest(job, policy, market, strategies={"mine": CheapestSpot})
    assert labels(named)[3:] == ["careful", "hindsight optimum"]
    assert named.scores[-2][1] == alone.scores[-2][1]


def _spec(name: str) -> Any:
    return type(co.load_policy("cheapest").strategy)(name)


class Raises:
    """A strategy with a defect."""

    def decide(self, view: co.View) -> co.Desired:
        raise ZeroDivisionError("no luck")


class NoDecision:
    """A strategy that decides nothing of the right type."""

    def decide(self, view: co.View) -> co.Desired:
        return None  # type: ignore[return-value]


@pytest.mark.parametrize("factory", [Raises, NoDecision])
def test_a_strategy_that_fails_is_named(
    factory: type[co.Strategy], job: co.Job, market: co.Market
) -> None:
    result = co.backtest(job, "cheapest", market, starts=2, strategies={"mine": factory})
    assert any("2 of 2 runs" in note and "mine" in note for note in result.notes)
    mine = next(each for each in result.summaries if each.policy == "mine")
    assert mine.misses == 0


class Unsuited(CheapestSpot):
    """Decides for the cheapest pool of all, which the job cannot use."""


def test_a_pool_that_cannot_run_the_job_is_not_launched(job: co.Job) -> None:
    small = replace(SPOT, instance_type="g4dn.xlarge")
    pools = [
        pool_history(pool, [(0, 9, price)], 24 * HOUR)
        for pool, price in ((small, 0.1), (SPOT, 1.0), (ON_DEMAND, 3.0))
    ]
    market = co.Market(market_of(*pools, tick_s=600.0))
    result = co.backtest(job, "cheapest", market, strategies={"mine": Unsuited})
    assert any("mine" in note and "g4dn.xlarge" in note for note in result.notes)
    usd = {each.policy: each.mean_usd for each in result.summaries}
    assert usd["mine"] == pytest.approx(usd["on_demand"])


def test_scores_are_kept_and_progress_is_seen(
    job: co.Job, market: co.Market, tmp_path: Path
) -> None:
    seen: list[tuple[int, int, int]] = []

    def watch(scores: Any, *, total: int, known: int, notes: tuple[str, ...]) -> list[ScoredTrial]:
        seen.append((total, known, len(notes)))
        return list(scores)

    file = tmp_path / "scores.jsonl"
    first = co.backtest(job, "cheapest", market, starts=2, results=file, progress=watch)
    again = co.backtest(job, "cheapest", market, starts=2, results=file, progress=watch)
    assert seen == [(10, 0, 0), (10, 10, 1)]
    assert sorted(map(repr, first.scores)) == sorted(map(repr, again.scores))
    with pytest.raises(co.SpecError, check=has_code("bad_argument", "progress")):
        co.backtest(job, "cheapest", market, progress=lambda scores, **_: [])


def _of_a_function() -> type[co.Strategy]:
    """A strategy without a place from which other processes could import it."""

    class Local(CheapestSpot):
        pass

    return Local


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("policies", {"policies": []}),
    ("markets", {"markets": []}),
    ("markets", {"markets": 3}),
    ("starts", {"starts": 0}),
    ("starts", {"starts": -1}),
    ("starts", {"starts": True}),
    ("deadlines", {"deadlines": [0.0]}),
    ("deadlines", {"deadlines": "soon"}),
    ("startups", {"startups": [-1]}),
    ("history_s", {"history_s": float("nan")}),
    ("notice_s", {"notice_s": -1}),
    ("notice_s", {"notice_s": float("inf")}),
    ("cooldown_s", {"cooldown_s": "5m"}),
    ("by", {"by": "weather"}),
    ("processes", {"processes": 0}),
    ("strategies", {"strategies": [CheapestSpot]}),
    ("strategies", {"strategies": {"adaptive": CheapestSpot}}),
    ("strategies", {"strategies": {"hindsight": CheapestSpot}}),
    ("strategies", {"strategies": {"": CheapestSpot}}),
    ("strategies", {"strategies": {"mine": CheapestSpot()}}),
    ("strategies", {"strategies": {"mine": functools.partial(int, "x")}}),
    ("strategies", {"strategies": {"mine": object}}),
    ("strategies", {"strategies": {"mine": _of_a_function()}, "processes": 2}),
]


@pytest.mark.parametrize(("argument", "arguments"), REFUSED)
def test_a_bad_argument_is_named_with_a_hint(
    argument: str, arguments: dict[str, Any], job: co.Job, market: co.Market
) -> None:
    given: dict[str, Any] = {"policies": "cheapest", "markets": market} | arguments
    with pytest.raises(co.SpecError, check=has_code("bad_argument", argument)) as caught:
        co.backtest(job, **given)
    assert caught.value.hint


def test_what_cannot_be_done(job: co.Job, market: co.Market, tmp_path: Path) -> None:
    with pytest.raises(co.InfeasibleError):
        co.backtest(job, "cheapest", market, deadlines=[600.0])
    with pytest.raises(co.MarketError, check=has_code("market_too_short")):
        co.backtest(job, "cheapest", market, deadlines=[48 * HOUR])
    with pytest.raises(co.StoreError):
        co.backtest(job, "cheapest", market, results=tmp_path / "none" / "scores.jsonl")
    with pytest.raises(co.SpecError, match="named 'cheapest'"):
        co.backtest(job, ["cheapest", "cheapest"], market)
    with pytest.raises(co.SpecError, check=has_code("bad_argument", "markets")):
        co.backtest(job, "cheapest", [market, replace(market)])


def test_markets_of_one_name_are_distinguished_by_their_files(
    job: co.Job, market: co.Market
) -> None:
    both = [replace(market, path=Path(name)) for name in ("a.parquet", "b.parquet")]
    result = co.backtest(job, "cheapest", both, by="market")
    assert {each.group for each in result.summaries} == {"a.parquet", "b.parquet"}
    assert len(co.backtest(job, "cheapest", [market, market]).scores) == 5


SCRIPT = """
import sys
from pathlib import Path
import costopt as co
from tests.support.cheapest_spot import CheapestSpot

market = co.read_market("sample")
job = co.load_job(sys.argv[1], now=market.starts_at)
own = {"mine": CheapestSpot}
co.backtest(job, "cheapest", market, starts=2, strategies=own, processes=2)
"""


@pytest.mark.process
def test_a_script_without_a_guard_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, script, STARTER_JOB],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert 'if __name__ == "__main__"' in done.stderr.splitlines()[-1]
