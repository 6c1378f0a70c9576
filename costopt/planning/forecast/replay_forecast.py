"""Forecasts by replays: the engine of backtests, with the strategy itself, in sampled futures.

Slower than ``run_policy``, and true of any strategy. The futures are drawn as for that one, and are
of the pools that are the cheapest for the job.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
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

FOLLOWS_PLANS = "milp"
"""The strategy whose forecast is that of its plan."""

FORECAST_REPLAYS, FORECAST_LIMIT_S = 20, 20.0
"""Of a strategy without an array form: the mean of twenty is within a tenth or so, and no plan
should take much longer than it would take to read it."""


def is_replayed(policy: Policy) -> bool:
    """Return whether replays alone say what the policy's strategy will do."""
    return policy.strategy.name not in (*PICKS_BY_SCORE, FOLLOWS_PLANS)


def replay_notes(policy: Policy, plans: Iterable[Plan | None]) -> Iterator[str]:
    """Yield a sentence on what the forecasts of plans rest on, where replays alone would say."""
    if not is_replayed(policy):
        return
    name, served = policy.strategy.name, [made for made in plans if made and made.allocations]
    replayed = {
        forecast.on_time.source
        for made in served
        for job, forecast in made.forecasts
        if job in dict(made.proposals)
    }
    for source in sorted(replayed):
        yield f"strategy {name!r} is forecast by {source}"
    missing = {
        job
        for made in served
        for job in {each.job for each in made.allocations}
        if job not in dict(made.proposals)
    }
    if missing:
        together = any(len(made.forecasts) > 1 for made in served)
        yield (
            f"no replay of strategy {name!r} was done in {FORECAST_LIMIT_S:g} s"
            f"{', or jobs contend for a limit' if together else ''}: the forecast of "
            f"{', '.join(sorted(missing))} is that of the plan"
        )


def choose_forecaster(
    jobs: Iterable[Job], policy: Policy, seen: QuoteSet, account: Account
) -> Forecaster | None:
    """Return what forecasts jobs that have not begun under the policy; None: their plan does.

    All replays of its jobs take ``FORECAST_LIMIT_S`` seconds at most.
    """
    if not is_replayed(policy):
        return forecaster_of(policy, seen.history)
    by_name = {job.name: job for job in jobs}
    ends_s = time.monotonic() + FORECAST_LIMIT_S

    def forecast(request: PlanRequest, part: PlannedJob) -> Forecast | None:
        left_s = ends_s - time.monotonic()
        job = by_name[part.demand.job.name]
        made = _replay(job, policy, seen, account, request, part, FORECAST_REPLAYS, left_s)
        return None if made is None else made.forecast

    return forecast


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
    return _replay(job, policy, seen, account, request, parts[0], replays, limit_s)


def _replay(
    job: Job,
    policy: Policy,
    seen: QuoteSet,
    account: Account,
    request: PlanRequest,
    part: PlannedJob,
    replays: int,
    limit_s: float,
) -> Replays | None:
    from costopt.backtesting.replay_process import run_apart
    from costopt.backtesting.trial import Trial, Window

    nodes, power_error = _pools(part)
    if not nodes or limit_s <= 0:
        return None
    known = {offer.pool: offer for offer in seen.offers}
    offers = [known[pool] for pool in nodes]
    shaky = [offer for offer in offers if offer.pool.capacity_type.is_interruptible]
    demand = part.demand
    counts = [nodes[offer.pool] for offer in shaky]
    # As many as the forecast draws, so that these are the first of its own where the pools agree.
    samples = max(SAMPLES, replays)
    futures = draw_futures(shaky, counts, seen.history, seen.now, span_s(demand), samples)
    whole = replace(account, quotas=(*account.quotas, *seen.quotas))
    # Of a job without a deadline the request has the one by which its patience ends.
    due_at = job.deadline_at or demand.job.deadline_at
    begun = replace(job, start_at=max(job.start_at, seen.now), deadline_at=due_at)
    names = [f"future {number + 1}" for number in range(replays)]
    histories = {
        name: history_of(futures, number, offers, seen.now, name)
        for number, name in enumerate(names)
    }
    config = replace(_config(seen, whole), markets=histories)
    trials = [Trial(Window(name, begun), policy) for name in names]
    runs = run_apart(config, trials, limit_s)
    due_h = (begun.until_at - begun.start_at).total_seconds() / 3600
    in_time = sum(run.finish_h is not None and run.finish_h <= due_h for run in runs)
    kind = f"engine replays of futures, by {futures.source}" if shaky else "engine replays"
    failure = next((run.failure for run in runs if run.failure), "")
    forecast = None
    if runs:
        late_h = (begun.start_at - seen.now).total_seconds() / 3600
        figures = _samples(runs, late_h, UNFINISHED_H * max(demand.due_h, WALL_TICK_H))
        forecast = forecast_of_runs(
            figures, power_error, demand, request.now, kind, shaky=bool(shaky)
        )
    return Replays(replays, len(runs), in_time, limit_s, kind, forecast, failure)


def _pools(part: PlannedJob) -> tuple[dict[Pool, int], float]:
    """Return the nodes of the smallest gang in each pool that the engine should choose from, and
    the largest relative error of their power."""
    table = part.table
    nodes: dict[Pool, int] = {}
    rows = np.concatenate(gang_rows(table, part.demand))
    for row in rows.tolist():
        pool = table.offers[table.offer[row]].pool.uncommitted
        nodes[pool] = min(nodes.get(pool, ANY_NODES), int(table.nodes[row]))
    return nodes, float(np.nan_to_num(table.power_error[rows]).max(initial=0.0))


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
