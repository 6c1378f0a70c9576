"""Is what is expected of a run what is then paid? Forecasts, and the engine from the same starts.

The default policy, from eight starts of each kind of job on each market. A forecast knows the
record by its start, or, as by price lists, the prices of then alone. With a record, each job is
tried twice more: with half as much time again, for the step that ``what-if`` shows between two
deadlines, and on spot alone, where it may be late. ``--sample N`` takes N starts.
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
from costopt.backtesting.trial import Score, Trial, Window
from costopt.catalog import load_catalog
from costopt.controller.forecasts import catalog_hazard_priors
from costopt.domain.account import UNLIMITED
from costopt.domain.market import CapacityType
from costopt.domain.plan import Forecast
from costopt.engine.settings import DEFAULT_COOLDOWN_S
from costopt.planning.quotes import QuoteSet, recorded_quotes
from costopt.planning.request import plan_job

STARTS = 8
POLICY = "cheapest"
MORE_TIME = 1.5
RECORD, LISTED, LATER, SPOT = "with a record", "by price lists", "with more time", "spot alone"

Figure = tuple[str, float, str]


@dataclass(frozen=True, slots=True)
class Pair:
    """What was said, and what happened from the same start."""

    market: str
    kind: str
    said: Forecast
    finish_h: float
    paid: Score

    @property
    def took_h(self) -> float:
        """Return the hours of the run."""
        assert self.paid.finish_s is not None
        return self.paid.finish_s / 3600

    @property
    def usd(self) -> float:
        """Return the dollars that were paid."""
        assert self.paid.usd is not None
        return self.paid.usd


Cells = dict[tuple[str, str], list[Pair]]
"""By market and kind."""


def run(effort: Effort | None = None) -> Iterator[Figure]:
    """Yield, by view, ratios and shares over all, by market and by kind."""
    starts = (effort or Effort()).sample or STARTS
    pairs: dict[str, list[Pair]] = defaultdict(list)
    for market in markets():
        for name, kind in KINDS.items():
            if kind.nodes <= market.max_nodes:
                for view, pair in _pairs(market, name, kind, starts):
                    pairs[view].append(pair)
    for view in (RECORD, LISTED):
        yield from _figures(view, pairs[view])
        yield from _by(view, pairs[view], lambda pair: pair.market)
        yield from _by(view, pairs[view], lambda pair: pair.kind)
    yield f"{RECORD}: error of CO2e, regions differ", 100 * _co2e_error(pairs[RECORD]), "%"
    yield f"{RECORD}: error of a step of what-if", 100 * _step(pairs[RECORD], pairs[LATER]), "%"
    yield from _brier(pairs[SPOT])


def _pairs(market: Market, name: str, kind: Kind, starts: int) -> Iterator[tuple[str, Pair]]:
    history, policy = market.history, co.load_policy(POLICY)
    limits = replace(policy.limits, capacity_types=(CapacityType.SPOT,))
    config = backtest_config(
        {history.name: history},
        notice_s=None,
        cooldown_s=DEFAULT_COOLDOWN_S,
        price_forecasts=False,
        carbon=None,
        account=UNLIMITED,
        past_s=0.0,
    )
    longer = replace(kind, due_h=MORE_TIME * kind.due_h)
    for at in starts_of(history, MORE_TIME * kind.due_h, starts):
        seen = recorded_quotes(history, at)
        for own, followed, views in (
            (kind, policy, {RECORD: seen, LISTED: _listed(seen)}),
            (longer, policy, {LATER: seen}),
            (kind, replace(policy, limits=limits), {SPOT: seen}),
        ):
            job = shift_job(job_of(market, own, at), at)
            paid = config.score(Trial(Window(history.name, job), followed))
            if paid.usd is None or (paid.finish_s is None and SPOT not in views):
                continue
            for view, quotes in views.items():
                said = plan_job(job, followed, quotes, explain=False).forecast_of(job.name)
                if said is not None:
                    finish_h = (said.finish_p50_at - job.start_at).total_seconds() / 3600
                    yield view, Pair(history.name, name, said, finish_h, paid)


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
    ratios = (_said_usd(cell) / _paid_usd(cell) for cell in _cells(pairs).values())
    return math.exp(fmean(map(math.log, ratios)))


def _cells(pairs: Sequence[Pair]) -> Cells:
    cells: Cells = defaultdict(list)
    for pair in pairs:
        cells[pair.market, pair.kind].append(pair)
    return cells


def _said_usd(pairs: Sequence[Pair]) -> float:
    return fmean(each.said.usd_mean for each in pairs)


def _paid_usd(pairs: Sequence[Pair]) -> float:
    return fmean(each.usd for each in pairs)


def _step(pairs: Sequence[Pair], later: Sequence[Pair]) -> float:
    """The mean error, over the cells, of what more time saves, as a share of the dollars paid."""
    cells, more = _cells(pairs), _cells(later)
    return fmean(
        abs((_said_usd(more[key]) - _said_usd(cell)) - (_paid_usd(more[key]) - _paid_usd(cell)))
        / _paid_usd(cell)
        for key, cell in cells.items()
        if key in more
    )


def _co2e_error(pairs: Sequence[Pair]) -> float:
    """The mean error by window on markets of several regions."""
    return fmean(
        abs(each.said.gco2e / each.paid.gco2e - 1)
        for each in pairs
        if each.market.startswith("sample") and each.said.gco2e and each.paid.gco2e
    )


def _brier(pairs: Sequence[Pair]) -> Iterator[Figure]:
    """Beside the score of a forecast that always says how many are in time (Brier 1950)."""
    share = fmean(bool(each.paid.on_time) for each in pairs)
    yield f"{SPOT}: windows", float(len(pairs)), ""
    yield f"{SPOT}: expected in time", 100 * fmean(each.said.on_time.value for each in pairs), "%"
    yield f"{SPOT}: in time", 100 * share, "%"
    score = fmean((each.said.on_time.value - bool(each.paid.on_time)) ** 2 for each in pairs)
    yield f"{SPOT}: Brier score", score, ""
    yield f"{SPOT}: Brier score of the share", share * (1 - share), ""


def _within(pairs: Sequence[Pair]) -> float:
    return fmean(pair.usd <= pair.said.usd_p95 * (1 + 1e-9) for pair in pairs)


def _kwh(pair: Pair) -> float:
    assert pair.said.kwh is not None
    assert pair.paid.kwh is not None
    return pair.said.kwh / pair.paid.kwh
