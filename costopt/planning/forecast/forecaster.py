"""The forecast of a job: its policy on sampled futures of the pools that it would use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from costopt.domain.history import MarketHistory
from costopt.domain.market import Offer
from costopt.domain.plan import Forecast
from costopt.domain.policy import Policy
from costopt.optimize.demand import Demand
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.planner import Forecaster
from costopt.optimize.random_draws import permuted_grid
from costopt.optimize.request import PlanRequest
from costopt.optimize.simulation import forecast_of_runs
from costopt.planning.forecast.contention import contending_groups
from costopt.planning.forecast.futures import Learned, draw_futures
from costopt.planning.forecast.gangs import build_gangs
from costopt.planning.forecast.policy_run import run_policy

PICKS_BY_SCORE = frozenset({"adaptive", "greedy_spot", "on_demand", "uniform_progress"})
"""Strategies that go to the cheapest pool with capacity behind the shield, as ``run_policy``."""

FOLLOWS_PLANS = "milp"
"""The strategy whose forecast is that of its plan."""

SAMPLES = 400

P95_FACTOR = 1.09
"""What the simulated 95th percentile of dollars is multiplied by: as in conformal prediction (Vovk
et al. 2005), the 95 % quantile of dollars paid over it, in 180 windows of eight markets
(``benchmarks.calibration``). With the factor of the other seven, of each market, 95 % of the runs
paid no more with a record and 91 % by price lists. Windows of a record overlap, and markets change.
"""

SPAN = 1.15
"""Futures are so many times as long as the time that the job has."""

WALL_TICK_H = 1 / 60
"""The daemon decides, and ends nodes, once a minute."""


def forecaster_of(
    policy: Policy,
    history: MarketHistory | None,
    learned: Learned | None = None,
    otherwise: Forecaster | None = None,
) -> Forecaster | None:
    """Return what forecasts the jobs of a policy; None where they follow plans.

    ``run_policy`` does it where it knows the strategy and nothing but its objective counts, and
    jobs do not contend; ``otherwise`` where it does not. ``history`` is the record that the offers
    are of, None for list prices; ``learned`` is what a daemon knows where it is too short.
    """
    if policy.strategy.name == FOLLOWS_PLANS:
        return None
    picks = policy.strategy.name in PICKS_BY_SCORE and not policy.objective.then

    def forecast(request: PlanRequest, parts: Sequence[PlannedJob]) -> dict[str, Forecast]:
        found: dict[str, Forecast] = {}
        for group in contending_groups(request, parts):
            made = None
            if picks and len(group) == 1:
                made = forecast_job(request, group[0], history, learned=learned)
            if made is not None:
                found[group[0].demand.job.name] = made
            elif otherwise is not None:
                found |= otherwise(request, group)
        return found

    return forecast


def span_s(demand: Demand) -> float:
    """Return the seconds from now of the futures of a job."""
    return 3600 * (demand.release_h + SPAN * max(demand.hours_left, WALL_TICK_H))


def forecast_job(
    request: PlanRequest,
    part: PlannedJob,
    history: MarketHistory | None,
    *,
    samples: int = SAMPLES,
    learned: Learned | None = None,
) -> Forecast | None:
    """Return the job's forecast under the policy; None where ``build_gangs`` returns None.

    ``part`` is the job with the configurations that the request allows.
    """
    demand = part.demand
    progress = next(view for view in request.jobs if view.job.name == demand.job.name).progress
    gangs = build_gangs(part.table, demand, permuted_grid(samples, 0, 0))
    if gangs is None:
        return None
    spot, now = gangs.interruptible, request.now
    offers, nodes = gangs.interruptible_pools()
    offers = [_with_own(offer, demand) for offer in offers]
    futures = draw_futures(offers, nodes, history, now, span_s(demand), samples, learned)
    tick_s = None if history is None else history.tick_s
    runs = run_policy(
        gangs,
        futures,
        request.policy.objective,
        release_h=demand.release_h,
        due_h=demand.due_h,
        billed_to_h=WALL_TICK_H if tick_s is None else tick_s / 3600,
        begun=demand.begun,
        starting_h=demand.starting_h,
        unsaved=max(0.0, progress.done_units - progress.saved_units) / demand.units,
    )
    of = f"futures, by {futures.source}" if spot else "runs on uninterruptible capacity"
    error = float(gangs.power_error.max())
    made = forecast_of_runs(runs, error, demand, now, of, shaky=spot > 0)
    return replace(made, usd_p95=made.usd_p95 * (P95_FACTOR if spot else 1.0))


def _with_own(offer: Offer, demand: Demand) -> Offer:
    """The offer with the nodes that the job has there, as it may keep them."""
    own = demand.running.get(offer.pool, 0)
    return replace(offer, nodes_available=own + (offer.nodes_available or 0)) if own else offer
