"""Who runs in the deadline benchmark: those whose costs are published, and ours, cross-fitted."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.fit_lifetime import fit
from costopt.backtesting.backtest import hindsight_policy
from costopt.backtesting.replay import PriorObservation
from costopt.backtesting.trial import Trial
from costopt.controller.forecasts import DEFAULT_HAZARD
from costopt.domain.history import MarketHistory
from costopt.domain.policy import Policy
from costopt.domain.ports import Strategy
from costopt.market.hazard import LearnedHazard
from costopt.market.lifetime import AgeRates, LifetimeModel
from costopt.strategies.adaptive.strategy import AdaptiveStrategy
from costopt.strategies.shield import ShieldedStrategy
from tests.support.cant_be_late import OneMachine, policy, read_trace

BOUND = "OMNISCIENT"
OURS = "adaptive, cross-fitted"
WARM = "adaptive, cross-fitted, with the pool's past"
SHIPPED = "adaptive, as shipped"


def _named(name: str, strategy: str, **parameters: bool) -> Policy:
    return replace(policy(strategy, **parameters), name=name)


REPRODUCED = (
    replace(hindsight_policy(policy("greedy_spot")), name=BOUND),
    _named("OnDemand", "on_demand"),
    _named("Greedy_NSDI", "greedy_spot"),
    _named("UP_NSDI", "uniform_progress"),
    _named("UP_no_hyst", "uniform_progress", hysteresis=False),
)
OWN = tuple(_named(name, "adaptive") for name in (OURS, WARM, SHIPPED))


@dataclass(frozen=True, slots=True)
class CrossFitted:
    """``rates`` by trace, each fitted on traces of the other year and of other zones only."""

    rates: Mapping[str, AgeRates]
    markets: Mapping[str, MarketHistory]

    def __call__(self, trial: Trial) -> Strategy | None:
        """The strategy of a cross-fitted policy, None of every other."""
        if trial.label not in (OURS, WARM):
            return None
        market, job = self.markets[trial.window.market], trial.window.job
        strategy = ShieldedStrategy(
            AdaptiveStrategy(lifetimes=LifetimeModel(prior=self.rates[trial.window.market]))
        )
        if trial.label == WARM:
            past = PriorObservation(job, trial.policy, market, OneMachine(), math.inf)
            past.teach(strategy, LearnedHazard(lambda _: DEFAULT_HAZARD))
        return strategy


def cross_fitted(folder: Path, markets: Mapping[str, MarketHistory]) -> CrossFitted:
    """Rates for every market by the name of its trace in ``folder``."""
    traces = {path.name: read_trace(path) for path in sorted(folder.glob("*.json"))}
    rates = {
        name: fit(read for other, read in traces.items() if _apart(name, other)) for name in markets
    }
    return CrossFitted(rates, markets)


def _apart(name: str, other: str) -> bool:
    """Whether two traces have neither the year nor the zone in common."""
    (year, zone), (other_year, other_zone) = _year_and_zone(name), _year_and_zone(other)
    return year != other_year and zone != other_zone


def _year_and_zone(name: str) -> tuple[str, str]:
    found = re.search(r"aws-\d\d-\d\d-(\d{4})_([a-z]+-[a-z]+-\d[a-z])_", name)
    assert found is not None, name
    return found[1], found[2]
