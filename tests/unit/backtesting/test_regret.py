"""What runs lost against the optimum: markets on which exactly one kind of decision costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from costopt.backtesting.backtest import hindsight_policy
from costopt.backtesting.ranking import summarize_policies
from costopt.backtesting.regret import CATEGORIES
from costopt.backtesting.trial import BacktestConfig, Score, Trial, Window
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.domain.ports import Strategy
from costopt.domain.view import Decision, Desired, Target, View
from tests.support.cant_be_late import NoHazard
from tests.support.engine_fixtures import SAFE, SPOT_A, SPOT_B, Machines, Powers, rules, task
from tests.support.market_fixtures import T0, market, pool_history

TICK_S = 600.0
TICKS = 40
SPOT_USD, OTHER_SPOT_USD, SAFE_USD = 1.2, 1.8, 6.0
"""$0.20, $0.30 and $1.00 a tick."""


@dataclass(frozen=True, slots=True)
class Scripted:
    """One node in the pool of each tick, None for none; the last pool from then on."""

    pools: Sequence[Pool | None]

    def decide(self, view: View) -> Desired:
        tick = int((view.now - T0).total_seconds() // TICK_S)
        pool = self.pools[min(tick, len(self.pools) - 1)]
        targets = () if pool is None else (Target(pool, 1),)
        return Desired(tuple(Decision(each.job.name, targets, "script") for each in view.jobs))


def _market(spot: Sequence[int], *, both: bool = False) -> MarketHistory:
    """Spot that is up where ``spot`` says so, on-demand always, and ``both``: another spot pool."""
    up = [*spot, *([spot[-1]] * (TICKS - len(spot)))]
    states = [(n * TICK_S, nodes, SPOT_USD) for n, nodes in enumerate(up)]
    pools = [
        pool_history(SPOT_A, states, TICKS * TICK_S),
        pool_history(SAFE, [(0.0, 9, SAFE_USD)], TICKS * TICK_S),
    ]
    if both:
        pools.append(pool_history(SPOT_B, [(0.0, 9, OTHER_SPOT_USD)], TICKS * TICK_S))
    return market(*pools, tick_s=TICK_S)


def _job(overhead_s: float = 0.0, save_s: float = 0.0, ticks: int = 20) -> Job:
    """Four ticks of work and the save at its end; else it is saved when a gang ends only."""
    work_s = 4 * TICK_S - save_s
    job = replace(task(work_s, ticks * TICK_S, save_s=save_s), startup_s=overhead_s)
    return replace(job, checkpoint=replace(job.checkpoint, restore_s=0.0, interval_s=1e9))


def _powers() -> Powers:
    return Powers()


def _score(history: MarketHistory, job: Job, strategy: Strategy, notice_s: float = 120.0) -> Score:
    """The run's score, whose categories sum to its dollars less those of the optimum."""
    policy = rules("greedy_spot")
    config = BacktestConfig(
        {history.name: history},
        Machines(),
        _powers,
        NoHazard,
        notice_s=notice_s,
        trial_strategy=lambda _: strategy,
        regret_against=hindsight_policy(policy),
    )
    window = Window(history.name, job)
    score = config.score(Trial(window, policy))
    best = config.score(Trial(window, hindsight_policy(policy)))
    assert score.usd is not None
    assert best.usd is not None
    assert score.regret_usd == pytest.approx(score.usd - best.usd, abs=1e-6)
    assert sum(_lost(score).values()) == pytest.approx(score.regret_usd, abs=1e-9)
    return score


def _lost(score: Score) -> dict[str, float]:
    """What is not 0."""
    found = {name: getattr(score, name) for name in CATEGORIES}
    return {name: usd for name, usd in found.items() if usd}


@pytest.mark.parametrize(
    ("pools", "spot", "overhead_s", "lost", "usd"),
    [
        ([None] * 5 + [SAFE], [1] * 5 + [0], 0, "waited_usd", 3.2),
        ([SAFE] * 2 + [None] * 4 + [SPOT_A], [0] * 6 + [1], 0, "on_demand_too_soon_usd", 1.6),
        ([SAFE], [1], 0, "on_demand_too_long_usd", 3.2),
        ([SPOT_A] + [None] * 4 + [SPOT_A], [1, 0, 0, 0, 0, 1], TICK_S, "wasted_spot_usd", 0.2),
        ([SPOT_B], [1], 0, "wrong_pool_usd", 0.4),
    ],
)
def test_one_kind_of_decision(
    pools: list[Pool | None], spot: list[int], overhead_s: float, lost: str, usd: float
) -> None:
    history = _market(spot, both=lost == "wrong_pool_usd")
    score = _score(history, _job(overhead_s), Scripted(pools))
    assert _lost(score) == pytest.approx({lost: usd})


def test_a_run_like_the_optimum_lost_nothing() -> None:
    assert _lost(_score(_market([1]), _job(), Scripted([SPOT_A]))) == {}


def test_work_that_is_done_again() -> None:
    """Three ticks of work are not saved when spot goes without notice."""
    job, history = _job(save_s=60.0), _market([1, 1, 1, 0, 1])
    score = _score(history, job, Scripted([SPOT_A]), notice_s=0.0)
    assert _lost(score) == pytest.approx({"lost_work_usd": 0.6})


def test_what_the_optimum_leaves_out_is_other() -> None:
    """A save before a move: the optimum, which moves too, knows of no saves."""
    spot = [1, 1, 0, 1]
    score = _score(_market(spot), _job(save_s=60.0), Scripted([SPOT_A]))
    assert _lost(score).keys() == {"other_usd"}


def test_a_late_run_counts_what_made_it_late() -> None:
    """Spot is up in time for the work, and again after the deadline, at twice the price."""
    states = [(0.0, 1, 1.2), (6 * TICK_S, 0, 2.4), (9 * TICK_S, 1, 2.4)]
    history = market(pool_history(SPOT_A, states, TICKS * TICK_S), tick_s=TICK_S)
    score = _score(history, _job(ticks=8), Scripted([None] * 9 + [SPOT_A]))
    assert score.on_time is False
    assert _lost(score) == pytest.approx({"waited_usd": 0.8})


def test_unknown_without_an_optimum_or_an_end() -> None:
    history, policy = _market([0]), rules("greedy_spot")
    config = BacktestConfig({history.name: history}, Machines(), _powers, NoHazard)
    window = Window(history.name, _job(ticks=2))
    assert config.score(Trial(window, policy)).regret_usd is None
    asked = replace(config, regret_against=hindsight_policy(policy))
    assert asked.score(Trial(window, policy)).regret_usd is None


def test_means_are_of_the_windows_in_which_it_is_known() -> None:
    policy = rules("greedy_spot")
    known = Score(usd=3.0, regret_usd=1.0, waited_usd=1.0, other_usd=0.0)
    scores = [
        (Trial(Window("one", _job()), policy), known),
        (Trial(Window("two", _job()), policy), Score(usd=9.0)),
    ]
    [found] = summarize_policies(scores, [policy.name], lambda _: "all", seed=0)
    assert (found.regret_runs, found.runs) == (1, 2)
    assert (found.regret_usd, found.waited_usd, found.other_usd) == (1.0, 1.0, 0.0)
