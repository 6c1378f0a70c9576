"""Means, quantiles and intervals of scores."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import fmean

import pytest

from costopt.backtesting.backtest import OPTIMUM, hindsight_policy
from costopt.backtesting.ranking import (
    PolicySummary,
    mean_interval,
    paired_differences,
    ratio_interval,
    summarize_policies,
    window_costs,
)
from costopt.backtesting.trial import Score, Trial, Window
from tests.support.engine_fixtures import HOUR_S, rules, task
from tests.support.market_fixtures import after

FIRST = rules("on_demand")
BEST = hindsight_policy(FIRST)
NAMED = replace(FIRST, name="tried")


def _window(hour: int, market: str = "m") -> Window:
    return Window(market, replace(task(), start_at=after(hour * HOUR_S)))


def _score(usd: float, *, on_time: bool = True, finish_s: float | None = 1.0) -> Score:
    return Score(usd=usd, kwh=1.0, finish_s=finish_s, on_time=on_time, interruptions=1)


def _rank(dollars: list[float], best: list[float], **more: object) -> dict[str, PolicySummary]:
    pairs = [(Trial(_window(h), NAMED), _score(usd)) for h, usd in enumerate(dollars)]
    pairs += [(Trial(_window(h), BEST), Score(usd=usd, on_time=True)) for h, usd in enumerate(best)]
    random.Random(3).shuffle(pairs)
    found = summarize_policies(pairs, ["tried", OPTIMUM], lambda _: "all", 0)
    return {standing.policy: standing for standing in found}


def test_the_ratio_is_that_of_means_over_the_same_windows() -> None:
    ranked = _rank([2.0, 4.0, 9.0], [1.0, 4.0, 5.0])
    assert ranked["tried"].hindsight_ratio == pytest.approx(1.5)
    assert ranked["tried"].mean_usd == 5.0
    assert ranked["tried"].p50_usd == 4.0
    assert ranked["tried"].p95_usd == pytest.approx(8.5)
    assert ranked[OPTIMUM].hindsight_ratio == 1.0
    assert (ranked[OPTIMUM].hindsight_low, ranked[OPTIMUM].hindsight_high) == (1.0, 1.0)
    assert ranked[OPTIMUM].kwh is None


def test_it_does_not_depend_on_the_order_in_which_scores_come() -> None:
    dollars, best = [float(n % 7 + 1) for n in range(30)], [1.0] * 30
    pairs = [(Trial(_window(h), NAMED), _score(usd)) for h, usd in enumerate(dollars)]
    pairs += [(Trial(_window(h), BEST), Score(usd=b, on_time=True)) for h, b in enumerate(best)]
    forth = summarize_policies(pairs, ["tried"], lambda _: "all", 5)
    assert forth == summarize_policies(pairs[::-1], ["tried"], lambda _: "all", 5)
    assert forth != summarize_policies(pairs, ["tried"], lambda _: "all", 6)


def test_no_ratio_where_a_run_was_not_finished_or_the_optimum_is_not_defined() -> None:
    pairs = [
        (Trial(_window(0), NAMED), _score(2.0)),
        (Trial(_window(1), NAMED), _score(2.0, on_time=False, finish_s=None)),
        *((Trial(_window(h), BEST), Score(usd=1.0, on_time=True)) for h in range(2)),
    ]
    (tried,) = summarize_policies(pairs, ["tried"], lambda _: "all", 0)
    assert tried.hindsight_ratio is None
    assert tried.misses == 1
    pairs[-1] = (Trial(_window(1), BEST), Score(usd=None))
    ranked = summarize_policies(pairs, ["tried", OPTIMUM], lambda _: "all", 0)
    assert [standing.policy for standing in ranked] == ["tried"]


def test_groups_are_ranked_on_their_own() -> None:
    pairs = [(Trial(_window(h, m), NAMED), _score(usd)) for m, usd in (("x", 1.0), ("y", 3.0))
             for h in range(2)]  # fmt: skip
    found = summarize_policies(pairs, ["tried"], lambda window: window.market, 0)
    assert [(s.group, s.mean_usd, s.runs) for s in found] == [("x", 1.0, 2), ("y", 3.0, 2)]


def test_the_interval_of_a_mean_is_about_two_standard_errors_wide() -> None:
    chance = random.Random(1)
    values = [chance.gauss(10, 2) for _ in range(400)]
    interval = mean_interval(values, 0)
    assert interval is not None
    assert interval == pytest.approx((fmean(values) - 0.196, fmean(values) + 0.196), abs=0.03)


def test_pairing_takes_out_what_windows_have_in_common() -> None:
    chance = random.Random(1)
    best = [chance.uniform(1, 100) for _ in range(50)]
    interval = ratio_interval([1.1 * usd for usd in best], best, 0)
    assert interval == pytest.approx((1.1, 1.1))


def test_a_single_window_has_no_interval() -> None:
    assert mean_interval([1.0], 0) is None


def test_a_paired_difference_is_over_the_windows_that_both_have() -> None:
    hard = [100.0 * hour for hour in range(1, 21)]
    pairs = [(Trial(_window(h), NAMED), _score(usd)) for h, usd in enumerate(hard)]
    more_expensive = replace(FIRST, name="dearer")
    pairs += [
        (Trial(_window(h), more_expensive), _score(usd + 9 + h % 3)) for h, usd in enumerate(hard)
    ]
    pairs += [
        (Trial(_window(99), more_expensive), _score(1.0)),
        (Trial(_window(98), NAMED), Score(usd=None)),
    ]
    random.Random(3).shuffle(pairs)
    costs = window_costs(pairs)
    (found,) = paired_differences(costs, "tried")
    assert (found.policy, found.windows, found.cheaper) == ("dearer", 20, 0)
    assert found.low_usd is not None
    assert 9 < found.low_usd < found.mean_usd
    assert found.is_clear
    (back,) = paired_differences(costs, "dearer")
    assert (back.cheaper, back.mean_usd) == (20, -found.mean_usd)
    same = paired_differences({"a": costs["tried"], "b": costs["tried"]}, "a")
    assert [(each.is_equal, each.is_clear) for each in same] == [(True, False)]
    (once,) = paired_differences(
        window_costs([p for p in pairs if p[0].window == _window(0)]), "tried"
    )
    assert (once.low_usd, once.is_clear) == (None, False)
