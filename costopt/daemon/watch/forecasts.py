"""Forecasts of the jobs that run or wait, from their present progress, made beside the ticks.

In each pass, jobs without a forecast come first, then those of which facts have changed, then the
others in turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from threading import Lock

from costopt.daemon.loop.strategy_pool import StrategyPool
from costopt.daemon.shared_state import JobForecast, SharedState, TickSnapshot
from costopt.domain.errors import CostoptError
from costopt.domain.history import MarketHistory
from costopt.domain.plan import Forecast
from costopt.domain.policy import Policy
from costopt.domain.view import JobView, View
from costopt.market.lifetime import LifetimeModel
from costopt.optimize.planner import Forecaster, plan, prepare
from costopt.optimize.request import build_request
from costopt.planning.forecast.forecaster import forecaster_of
from costopt.planning.forecast.futures import Key
from costopt.strategies.patience import with_deadlines

PROCESSOR_SHARE = 0.05
"""Of one processor: ticks share it, and are slowed by no more than that."""

PASS_S = 0.5
"""Seconds after which a pass begins no other forecast, so that the daemon can be stopped."""

MIN_AGE = timedelta(minutes=1)
"""Facts of a market that changes at every tick are not news each time."""

MAX_AGE = timedelta(minutes=15)
"""A forecast without news differs little in less: it is of hours."""

TICK_WAIT_S = 2.0
PLAN_S = 5.0
PROGRESS_STEPS = 20
"""Progress is news at every twentieth of the job."""

Facts = tuple[object, ...]


class LearnedForecasters:
    """Makes forecasters with what the strategies have learned, which ticks change: ``ticking`` is
    held meanwhile.

    ``strategies`` is None while another daemon leads. ``history`` is the record that a simulated
    cloud plays.
    """

    def __init__(
        self,
        ticking: Lock,
        history: MarketHistory | None = None,
    ) -> None:
        self._ticking = ticking
        self._history = history
        self.strategies: StrategyPool | None = None

    def of(self, policy: Policy) -> Forecaster | None:
        """Return what forecasts jobs under the policy; None: their plan does."""
        return forecaster_of(policy, self._history, self._learned)

    def _learned(self, keys: Sequence[Key], now: datetime) -> LifetimeModel | None:
        """Return what is known of these pools, None where nothing is or a tick takes long."""
        if not self._ticking.acquire(timeout=TICK_WAIT_S):
            return None
        try:
            models = () if self.strategies is None else self.strategies.lifetimes()
            known = [model.excerpt(keys, now) for model in models]
        finally:
            self._ticking.release()
        best = max(known, key=lambda model: sum(map(model.knows, keys)), default=None)
        return best if best is not None and any(map(best.knows, keys)) else None


@dataclass(frozen=True, slots=True)
class _OpenJob:
    """A job of the last tick, with the facts that its forecast rests on."""

    view: View
    job_view: JobView
    facts: Facts

    @property
    def name(self) -> str:
        return self.job_view.job.name


class ForecastBoard:
    """Stores the forecasts on ``board``, within ``PROCESSOR_SHARE``."""

    def __init__(
        self,
        board: SharedState,
        forecasters: LearnedForecasters,
        stopwatch_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._board = board
        self._forecasters = forecasters
        self._stopwatch_s = stopwatch_s
        self._facts: dict[str, Facts] = {}
        self._rests_until_s = 0.0

    def update(self) -> None:
        """Make the forecasts that are due, for as long as there is time."""
        began_s = self._stopwatch_s()
        if began_s < self._rests_until_s:
            return
        try:
            self._make_due(began_s)
        finally:
            ended_s = self._stopwatch_s()
            self._rests_until_s = ended_s + (ended_s - began_s) * (1 / PROCESSOR_SHARE - 1)

    def _make_due(self, began_s: float) -> None:
        seen = self._board.snapshot
        jobs = list(_open_jobs(seen))
        self._forget({job.name for job in jobs})
        for job in self._due(jobs, seen.now):
            # First, so that a job whose forecast fails does not keep the others from theirs.
            self._facts[job.name] = job.facts
            made = self._forecast(job)
            if made is not None:
                summary = seen.summaries.get(job.name)
                forecast = job_forecast(made, summary.usd if summary else 0.0, seen.now)
                self._board.forecasts = {**self._board.forecasts, job.name: forecast}
            if self._stopwatch_s() - began_s > PASS_S:
                break

    def _due(self, jobs: Iterable[_OpenJob], now: datetime) -> list[_OpenJob]:
        ranked: list[tuple[int, datetime, str, _OpenJob]] = []
        for job in jobs:
            made = self._board.forecasts.get(job.name)
            if made is None and job.name not in self._facts:
                ranked.append((0, now, job.name, job))
                continue
            made_at = now - MIN_AGE if made is None else made.made_at
            is_news = self._facts.get(job.name) != job.facts
            if now - made_at >= (MIN_AGE if is_news else MAX_AGE):
                ranked.append((1 if is_news else 2, made_at, job.name, job))
        return [job for *_, job in sorted(ranked, key=lambda each: each[:3])]

    def _forecast(self, job: _OpenJob) -> Forecast | None:
        """Return the forecast, that of the plan where only this is known; None without one."""
        view = with_deadlines(replace(job.view, jobs=(job.job_view,)))
        try:
            request = build_request(view)
            forecaster = self._forecasters.of(view.policy)
            parts, _ = prepare(request) if forecaster else ([], ())
            if forecaster and (made := forecaster(request, parts).get(job.name)):
                return made
            return plan(request, time_limit_s=PLAN_S, explain=False).forecast_of(job.name)
        except CostoptError:
            return None

    def _forget(self, names: set[str]) -> None:
        forecasts = self._board.forecasts
        if forecasts.keys() - names:
            self._board.forecasts = {n: made for n, made in forecasts.items() if n in names}
        self._facts = {name: facts for name, facts in self._facts.items() if name in names}


def job_forecast(made: Forecast, spent_usd: float, now: datetime) -> JobForecast:
    """Return a forecast from ``now`` on as that of the whole job, of which so much is spent."""
    return JobForecast(
        made_at=now,
        usd=spent_usd + made.usd_mean,
        usd_p95=spent_usd + made.usd_p95,
        usd_to_come=made.usd_mean,
        kwh_to_come=made.kwh,
        finish_p50_at=made.finish_p50_at,
        finish_p95_at=made.finish_p95_at,
        on_time=made.on_time.value,
        source=made.on_time.source,
    )


def _open_jobs(seen: TickSnapshot) -> Iterator[_OpenJob]:
    for view in seen.views:
        market = tuple(
            (offer.pool, offer.nodes_available, price and round(price.value, 4))
            for offer in view.offers
            for price in (offer.price_usd_per_hour,)
        )
        for job_view in view.jobs:
            yield _OpenJob(view, job_view, (hash(market), *_facts(job_view)))


def _facts(job_view: JobView) -> Facts:
    job, progress = job_view.job, job_view.progress
    nodes = frozenset(node.node_id for node in job_view.nodes)
    steps = int(PROGRESS_STEPS * progress.done_units / max(job.work.amount, 1e-12))
    return job.until_at, progress.state, progress.generation, steps, nodes
