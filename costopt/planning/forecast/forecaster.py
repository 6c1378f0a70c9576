"""The forecast of a job: its policy on sampled futures of the pools that it would use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from costopt.domain.history import MarketHistory
from costopt.domain.notices import NoticePeriod, spot_notice_s
from costopt.domain.plan import Forecast
from costopt.domain.policy import Policy
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.planner import Forecaster
from costopt.optimize.random_draws import RunSamples, permuted_grid
from costopt.optimize.request import PlanRequest
from costopt.optimize.simulation import forecast_of_runs
from costopt.planning.forecast.futures import Futures, draw_futures
from costopt.planning.forecast.gangs import Choice, Gangs, build_gangs, choose_rows
from costopt.planning.forecast.policy_run import run_policy

PICKS_BY_SCORE = frozenset({"adaptive", "greedy_spot", "on_demand", "uniform_progress"})
"""Strategies that go to the cheapest pool with capacity behind the shield, as ``run_policy``."""

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


def forecaster_of(policy: Policy, history: MarketHistory | None) -> Forecaster | None:
    """Return what forecasts the jobs of a policy; None where they follow plans, or its objective
    has further aims, which ``run_policy`` does not know.

    ``history`` is the record that the offers are of, None for list prices.
    """
    if policy.strategy.name not in PICKS_BY_SCORE or policy.objective.then:
        return None
    return partial(forecast_job, history=history)


def forecast_job(
    request: PlanRequest,
    part: PlannedJob,
    history: MarketHistory | None,
    *,
    samples: int = SAMPLES,
    notice_s: NoticePeriod = spot_notice_s,
) -> Forecast | None:
    """Return the job's forecast under the policy; None where it has no gang, or has gangs that
    differ in size or speed, and of an array, whose nodes need not run at once.

    ``part`` is the job with the configurations that the request allows.
    """
    choice = None if part.demand.job.array else choose_rows(part.table, part.demand)
    if choice is None:
        return None
    return _Simulation(request, part, history, notice_s).forecast(choice, samples)


@dataclass(frozen=True, slots=True)
class _Simulation:
    """A job's policy on futures of the pools of a choice of gangs."""

    request: PlanRequest
    part: PlannedJob
    history: MarketHistory | None
    notice_s: NoticePeriod

    def run(self, choice: Choice, futures: Futures) -> RunSamples:
        """Return the runs in the futures of these gangs' pools."""
        return run_policy(
            self._gangs(choice, len(futures.nodes)),
            futures,
            self.request.policy.objective,
            release_h=self.part.demand.release_h,
            due_h=self.part.demand.due_h,
            billed_to_h=self._billed_to_h(),
            begun=self._begun(),
        )

    def forecast(self, choice: Choice, samples: int) -> Forecast:
        """Return the forecast of these gangs."""
        shaky, futures = choice.interruptible > 0, self.futures(choice, samples)
        made = forecast_of_runs(
            self.run(choice, futures),
            float(self.part.table.power_error[list(choice.rows)].max()),
            self.part.demand,
            self.request.now,
            f"futures, by {futures.source}" if shaky else "runs on uninterruptible capacity",
            shaky=shaky,
        )
        return replace(made, usd_p95=made.usd_p95 * (P95_FACTOR if shaky else 1.0))

    def _gangs(self, choice: Choice, samples: int) -> Gangs:
        draws = permuted_grid(samples, 0, 0)
        table, demand = self.part.table, self.part.demand
        return build_gangs(table, demand, choice, self.notice_s, draws, begun=self._begun())

    def futures(self, choice: Choice, samples: int) -> Futures:
        """Return what the pools of these gangs may do while the job runs."""
        table, demand = self.part.table, self.part.demand
        rows = list(choice.rows[: choice.interruptible])
        span_h = demand.release_h + SPAN * max(demand.hours_left, WALL_TICK_H)
        return draw_futures(
            [table.offers[number] for number in table.offer[rows]],
            table.nodes[rows].tolist(),
            self.history,
            self.request.now,
            3600 * span_h,
            samples,
        )

    def _begun(self) -> bool:
        views = (v for v in self.request.jobs if v.job.name == self.part.demand.job.name)
        return next(views).progress.saved_units > 0

    def _billed_to_h(self) -> float:
        tick_s = None if self.history is None else self.history.tick_s
        return WALL_TICK_H if tick_s is None else tick_s / 3600
