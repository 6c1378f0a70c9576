"""Is what is expected of a run what is then paid? Forecasts, and the engine from the same starts.

The default policy, from eight starts of each kind of job on each market. A forecast knows the
record by its start, or, as by price lists, the prices of then alone. ``--sample N`` takes N starts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import costopt as co
from benchmarks.calibration_cases import KINDS, Kind, Market, job_of, markets, starts_of
from benchmarks.trials import Effort
from costopt.backtesting.backtest import backtest_config, shift_job
from costopt.backtesting.trial import Trial, Window
from costopt.catalog import load_catalog
from costopt.controller.forecasts import catalog_hazard_priors
from costopt.domain.account import UNLIMITED
from costopt.domain.plan import Forecast
from costopt.engine.settings import DEFAULT_COOLDOWN_S
from costopt.planning.quotes import QuoteSet, recorded_quotes
from costopt.planning.request import plan_job

STARTS = 8
POLICY = "cheapest"

Figure = tuple[str, float, str]


@dataclass(frozen=True, slots=True)
class Pair:
    """What was said, and what happened from the same start."""

    market: str
    kind: str
    said: Forecast
    finish_h: float
    usd: float
    kwh: float
    took_h: float


def run(effort: Effort | None = None) -> Iterator[Figure]:
    """Yield, by view, ratios and shares over all, by market and by kind."""
    starts = (effort or Effort()).sample or STARTS
    pairs: dict[str, list[Pair]] = defaultdict(list)
    for market in markets():
        for name, kind in KINDS.items():
            if kind.nodes <= market.max_nodes:
                for view, pair in _pairs(market, name, kind, starts):
                    pairs[view].append(pair)
    for view, found in pairs.items():
        yield from _figures(view, found)
        yield from _by(view, found, lambda pair: pair.market)
        yield from _by(view, found, lambda pair: pair.kind)


def _pairs(market: Market, name: str, kind: Kind, starts: int) -> Iterator[tuple[str, Pair]]:
    history, policy = market.history, co.load_policy(POLICY)
    config = backtest_config(
        {history.name: history},
        notice_s=None,
        cooldown_s=DEFAULT_COOLDOWN_S,
        price_forecasts=False,
        carbon=None,
        account=UNLIMITED,
        past_s=0.0,
    )
    for at in starts_of(history, kind.due_h, starts):
        job = shift_job(job_of(market, kind, at), at)
        score = config.score(Trial(Window(history.name, job), policy))
        if score.usd is None or score.finish_s is None or score.kwh is None:
            continue
        seen = recorded_quotes(history, at)
        for view, quotes in (("with a record", seen), ("by price lists", _listed(seen))):
            said = plan_job(job, policy, quotes, explain=False).forecast_of(job.name)
            if said is not None:
                finish_h = (said.finish_p50_at - job.start_at).total_seconds() / 3600
                took_h = score.finish_s / 3600
                yield view, Pair(history.name, name, said, finish_h, score.usd, score.kwh, took_h)


def _listed(seen: QuoteSet) -> QuoteSet:
    """The same prices without a record, and with the hazards of the catalog."""
    prior = catalog_hazard_priors(load_catalog())
    offers = tuple(
        replace(
            offer,
            nodes_available=None,
            availability=None,
            hazard_per_hour=prior(offer.pool)
            if offer.pool.capacity_type.is_interruptible
            else offer.hazard_per_hour,
        )
        for offer in seen.offers
    )
    return QuoteSet(seen.now, offers, "prices alone")


def _figures(view: str, pairs: Sequence[Pair]) -> Iterator[Figure]:
    yield f"{view}: windows", float(len(pairs)), ""
    yield f"{view}: expected over paid", _ratio(pairs), ""
    yield f"{view}: paid at most P95", 100 * _within(pairs), "%"
    yield f"{view}: kWh, expected over used", fmean(_kwh(each) for each in pairs), ""
    finish = fmean(each.finish_h / each.took_h - 1 for each in pairs)
    yield f"{view}: finish, expected later than it was by", 100 * finish, "%"


def _by(view: str, pairs: Sequence[Pair], of: Callable[[Pair], str]) -> Iterator[Figure]:
    for name in dict.fromkeys(map(of, pairs)):
        own = [pair for pair in pairs if of(pair) == name]
        yield f"{view}: {name}: expected over paid", _ratio(own), ""
        yield f"{view}: {name}: paid at most P95", 100 * _within(own), "%"


def _ratio(pairs: Sequence[Pair]) -> float:
    """The geometric mean, over cells of market and kind, of dollars expected over dollars paid."""
    cells: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for pair in pairs:
        cells[pair.market, pair.kind].append(pair)
    ratios = (
        sum(each.said.usd_mean for each in cell) / sum(each.usd for each in cell)
        for cell in cells.values()
    )
    return math.exp(fmean(map(math.log, ratios)))


def _within(pairs: Sequence[Pair]) -> float:
    return fmean(pair.usd <= pair.said.usd_p95 * (1 + 1e-9) for pair in pairs)


def _kwh(pair: Pair) -> float:
    assert pair.said.kwh is not None
    return pair.said.kwh / pair.kwh
