"""Forecasts by replays: the engine of backtests, with the strategy itself, in sampled futures.

Slower than ``run_policy``, and true of any strategy. The futures are drawn as for that one, and are
of the pools that are the cheapest for the job.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np

from costopt.domain.account import Account
from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.domain.plan import Forecast, Plan
from costopt.domain.policy import Policy
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.planner import Forecaster, prepare
from costopt.optimize.random_draws import RunSamples
from costopt.optimize.request import PlanRequest
from costopt.optimize.simulation import forecast_of_runs
from costopt.planning.forecast.forecaster import (
    FOLLOWS_PLANS,
    PICKS_BY_SCORE,
    SAMPLES,
    WALL_TICK_H,
    forecaster_of,
    span_s,
)
from costopt.planning.forecast.future_market import history_of
from costopt.planning.forecast.futures import ANY_NODES, draw_futures
from costopt.planning.forecast.gangs import gang_rows
from costopt.planning.forecast.policy_run import UNFINISHED_H
from costopt.planning.forecast.replays import Replays

if TYPE_CHECKING:
    from costopt.backtesting.replay_process import ReplayedRun
    from costopt.backtesting.trial import BacktestConfig
    from costopt.planning.quotes import QuoteSet

FORECAST_REPLAYS, FORECAST_LIMIT_S = 20, 10.0
"""Where there is no array form: the mean of twenty is within a tenth or so, and no plan should take
much longer than it would take to read it."""

MIN_REPLAYS = 5
"""The mean of fewer says less than the plan does."""

ENGINE_REPLAYS = "engine replays"


def needs_replays(policy: Policy) -> bool:
    """Return whether replays alone say what the policy does, of a job alone, too."""
    own = policy.strategy.name not in (*PICKS_BY_SCORE, FOLLOWS_PLANS)
    return own or (policy.strategy.name != FOLLOWS_PLANS and bool(policy.objective.then))


def replay_notes(policy: Policy, plans: Iterable[Plan | None]) -> Iterator[str]:
    """Yield a sentence on what the forecasts of plans rest on, where replays alone would say."""
    if policy.strategy.name == FOLLOWS_PLANS:
        return
    sources: set[str] = set()
    missing: set[str] = set()
    for made in plans:
        if made is None or not made.allocations:
            continue
        known = dict(made.proposals)
        sources |= {own.on_time.source for job, own in made.forecasts if job in known}
        missing |= {each.job for each in made.allocations} - known.keys()
    what = f"strategy {policy.strategy.name!r}"
    for source in sorted(source for source in sources if ENGINE_REPLAYS in source):
        yield f"{what} is forecast by {source}"
    if missing:
        yield (
            f"{what} was replayed less than {MIN_REPLAYS} times in {FORECAST_LIMIT_S:g} s: the "
            f"forecast of "
            f"{', '.join(sorted(missing))} is that of the plan"
        )


def choose_forecaster(
    jobs: Iterable[Job], policy: Policy, seen: QuoteSet, account: Account
) -> Forecaster | None:
    """Return what forecasts jobs that have not begun under the policy; None: their plan does.

    All replays of its jobs take ``FORECAST_LIMIT_S`` seconds at most.
    """
    by_name = {job.name: job for job in jobs}
    ends_s: list[float] = []

    def replay(request: PlanRequest, parts: Sequence[PlannedJob]) -> dict[str, Forecast]:
        if not ends_s:
            ends_s.append(time.monotonic() + FORECAST_LIMIT_S)
        asked = _Replayed(tuple(by_name[part.demand.job.name] for part in parts), tuple(parts))
        left_s = ends_s[0] - time.monotonic()
        found = _replay(asked, policy, seen, account, request.now, FORECAST_REPLAYS, left_s)
        return {
            job: made.forecast
            for job, made in found.items()
            if made.forecast is not None and made.done >= min(MIN_REPLAYS, FORECAST_REPLAYS)
        }

    return forecaster_of(policy, seen.history, otherwise=replay)


def replay_job(
    job: Job, policy: Policy, seen: QuoteSet, account: Account, replays: int, limit_s: float
) -> Replays | None:
    """Return the outcome of so many replays of the job, of those that are done in ``limit_s``
    seconds; None where no offer can run it. Raise StaleDataError."""
    from costopt.planning.request import build_plan_request

    request = build_plan_request((job,), policy, seen, account)
    parts, _ = prepare(request)
    if not parts:
        return None
    asked = _Replayed((job,), tuple(parts))
    return _replay(asked, policy, seen, account, request.now, replays, limit_s).get(job.name)


@dataclass(frozen=True, slots=True)
class _Replayed:
    """Jobs that run beside each other, and their tables, in the same order."""

    jobs: tuple[Job, ...]
    parts: tuple[PlannedJob, ...]

    def pools(self) -> dict[Pool, int]:
        """Return the nodes of the smallest gang in each pool that the engine should choose from."""
        found: dict[Pool, int] = {}
        for part in self.parts:
            table = part.table
            for row in np.concatenate(gang_rows(table, part.demand)).tolist():
                pool = table.offers[table.offer[row]].pool.uncommitted
                found[pool] = min(found.get(pool, ANY_NODES), int(table.nodes[row]))
        return found

    def begun(self, now: datetime) -> tuple[Job, ...]:
        """Return the jobs as they begin; of one without a deadline the table has that by which its
        patience ends."""
        return tuple(
            replace(
                job,
                start_at=max(job.start_at, now),
                deadline_at=job.deadline_at or part.demand.job.deadline_at,
            )
            for job, part in zip(self.jobs, self.parts, strict=True)
        )


def _replay(
    asked: _Replayed,
    policy: Policy,
    seen: QuoteSet,
    account: Account,
    now: datetime,
    replays: int,
    limit_s: float,
) -> dict[str, Replays]:
    """Return the outcome by job; empty where no offer can run them, or there is no time."""
    from costopt.backtesting.replay_process import run_apart
    from costopt.backtesting.trial import Trial, Window

    nodes = asked.pools()
    if not nodes or limit_s <= 0:
        return {}
    known = {offer.pool: offer for offer in seen.offers}
    offers = [known[pool] for pool in nodes]
    shaky = [offer for offer in offers if offer.pool.capacity_type.is_interruptible]
    counts = [nodes[offer.pool] for offer in shaky]
    # As many as the forecast draws, so that these are the first of its own where the pools agree.
    samples, span_max_s = max(SAMPLES, replays), max(span_s(part.demand) for part in asked.parts)
    futures = draw_futures(shaky, counts, seen.history, seen.now, span_max_s, samples)
    whole = replace(account, quotas=(*account.quotas, *seen.quotas))
    first, *others = asked.begun(seen.now)
    names = [f"future {number + 1}" for number in range(replays)]
    histories = {
        name: history_of(futures, number, offers, seen.now, name)
        for number, name in enumerate(names)
    }
    config = replace(_config(seen, whole), markets=histories)
    trials = [Trial(Window(name, first, tuple(others)), policy) for name in names]
    done = run_apart(config, trials, limit_s)
    kind = f"{ENGINE_REPLAYS} of futures, by {futures.source}" if shaky else ENGINE_REPLAYS
    found: dict[str, Replays] = {}
    for number, (job, part) in enumerate(zip((first, *others), asked.parts, strict=True)):
        runs = [jobs[number] for jobs in done]
        due_h = (job.until_at - job.start_at).total_seconds() / 3600
        in_time = sum(run.finish_h is not None and run.finish_h <= due_h for run in runs)
        failure = next((run.failure for run in runs if run.failure), "")
        forecast = None
        if runs:
            late_h = (job.start_at - seen.now).total_seconds() / 3600
            figures = _samples(runs, late_h, UNFINISHED_H * max(part.demand.due_h, WALL_TICK_H))
            error = _power_error(part)
            forecast = forecast_of_runs(figures, error, part.demand, now, kind, shaky=bool(shaky))
        found[job.name] = Replays(replays, len(runs), in_time, limit_s, kind, forecast, failure)
    return found


def _power_error(part: PlannedJob) -> float:
    """Return the largest relative error of the power of the gangs."""
    rows = np.concatenate(gang_rows(part.table, part.demand))
    return float(np.nan_to_num(part.table.power_error[rows]).max(initial=0.0))


def _config(seen: QuoteSet, account: Account) -> BacktestConfig:
    from costopt.backtesting.trial import BacktestConfig
    from costopt.catalog.site_machines import account_catalog
    from costopt.controller.forecasts import CatalogModels
    from costopt.domain.transfers import with_root_volumes
    from costopt.energy.carbon import CarbonHistory, RecordedCarbon

    catalog = account_catalog(account)
    # Live intensities are those of the present, and a connection goes into no other process.
    carbon = None
    if isinstance(seen.carbon, CarbonHistory):
        carbon = RecordedCarbon(seen.carbon, catalog.region)
    models = CatalogModels(catalog, carbon)
    return BacktestConfig(
        markets={},
        machines=catalog,
        powers=models.powers,
        hazards=models.hazards,
        transfers=with_root_volumes(catalog.transfer, account.providers),
        forecasts=models.forecasts,
        carbon=carbon,
        account=account,
        # One for all pools: the shortest of those that are known.
        notice_s=min(seen.notices_s.values(), default=None),
    )


def _samples(runs: Sequence[ReplayedRun], late_h: float, unfinished_h: float) -> RunSamples:
    def row(figures: Iterable[float | None]) -> np.ndarray:
        return np.array([[math.nan if each is None else float(each) for each in figures]])

    hours = (unfinished_h if run.finish_h is None else late_h + run.finish_h for run in runs)
    return RunSamples(
        finish_h=row(hours),
        usd=row(run.usd for run in runs),
        kwh=row(run.kwh for run in runs),
        interruptions=row(run.interruptions for run in runs),
        gco2e=row(run.gco2e for run in runs),
        changed=row(run.changed for run in runs),
    )
