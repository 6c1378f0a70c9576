"""Plans: the optimizer's result, with its candidates, forecasts and binding constraints."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.market import Pool


class PlanStatus(StrEnum):
    """How the solve ended, by the solution and its actual gap."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Allocation:
    """nodes × pool × interval × power cap, for one job.

    ``paid_h`` are the hours of the interval that are expected to be paid: all but the waits for
    capacity. None is unknown.
    """

    job: str
    pool: Pool
    nodes: int
    start_at: datetime
    end_at: datetime
    power_cap_w: float | None = None
    paid_h: float | None = None

    @property
    def node_hours(self) -> float:
        """Return nodes times paid hours, times all hours where these are unknown."""
        hours = (self.end_at - self.start_at).total_seconds() / 3600
        return self.nodes * (hours if self.paid_h is None else self.paid_h)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expected outcome of a run, a plan or a candidate. None is unknown.

    ``usd_mean`` is what is expected to be paid; dollars and finish have a median and a 95th
    percentile besides. Energy carries a 90 % interval, and is unknown with its basis and ``gco2e``
    where a node's power is. ``on_time`` is the probability of finishing by the deadline and within
    the job's budget, at which it stops; ``within_budget`` that of spending no more dollars and kWh
    than the budget, None where the job has none. ``falls_back`` is the probability of changing to
    uninterruptible capacity on the way, so as not to be late: the other figures include the cost of
    that. ``usd_error`` and ``kwh_error`` are the standard errors of ``usd_mean`` and ``kwh`` that
    result from the number of simulated runs.
    """

    usd_mean: float
    usd_p50: float
    usd_p95: float
    kwh: float | None
    kwh_low: float | None
    kwh_high: float | None
    gco2e: float | None
    finish_p50_at: datetime
    finish_p95_at: datetime
    on_time: Estimate
    falls_back: Estimate
    energy_basis: Basis | None = Basis.MODELLED
    expected_interruptions: float = 0.0
    usd_error: float = 0.0
    kwh_error: float | None = 0.0
    within_budget: Estimate | None = None


COOLDOWN = "cooldown"
"""The code of a pool that has capacity but is in cooldown, and the rule of a decision that would
otherwise have used it."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why an offer or a candidate was not chosen. ``code`` is stable, for machines.

    ``enters_below_usd_per_hour`` is the node price under which it would be chosen, if computed.
    """

    pool: Pool
    code: str
    reason: str
    enters_below_usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One configuration assessed alone: the whole job on ``nodes`` of ``pool``.

    For a spread, ``pool`` is the first one, and ``spread`` are all with their nodes; empty
    otherwise. ``price_usd_per_hour`` is the present price of a node, for a spread the mean;
    ``price_source`` is where it comes from, ``price_age_s`` the age of the oldest. ``speed`` is in
    units of work per second, of several phases the first one's.
    """

    pool: Pool
    nodes: int
    price_usd_per_hour: float
    price_age_s: float | None
    speed: Estimate
    forecast: Forecast
    chosen: bool
    rejection: Rejection | None = None
    spread: tuple[tuple[Pool, int], ...] = ()
    price_source: str = ""


@dataclass(frozen=True, slots=True)
class LimitUse:
    """What a job holds of a limit at most, in its unit, and the dollars that it pays for that.

    ``paid_usd`` is the limit's shadow price over the time in which the job holds it: what its plan
    costs the others. None where the price was not computed.
    """

    job: str
    amount: float
    paid_usd: float | None = None


SLACK_TOLERANCE = 1e-6
"""Slack below this is the solver's tolerance."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """One named constraint of the model at the solution: slack 0 means it binds.

    ``slack`` is in ``unit``; for a limit at each instant it is the minimum over the plan.
    ``shadow_price`` is how many dollars of the objective one more unit would save, None where that
    was not computed. Of limits that jobs share, ``most`` is the maximum and ``uses`` are what each
    job holds of it.
    """

    name: str
    slack: float
    shadow_price: float | None = None
    unit: str = ""
    most: float | None = None
    uses: tuple[LimitUse, ...] = ()

    @property
    def binds(self) -> bool:
        """Return whether nothing of it is left."""
        return self.slack <= SLACK_TOLERANCE


@dataclass(frozen=True, slots=True)
class Plan:
    """Allocations over time with their expected outcome.

    ``objective_usd`` is the policy's objective; ``bound_usd`` a proven lower bound of it and
    ``gap`` = (objective − bound) / max(|objective|, 1e-9). ``binding`` names the constraint that
    makes an INFEASIBLE plan so; ``unserved`` names the jobs that it does not finish in time, the
    allocations being those of the others. ``forecasts`` are of what the policy's strategy will
    run; ``proposals`` of following the allocations, for the jobs whose strategy does not.
    ``solve_s`` is the time for the whole plan, ``build_s`` the part of it for building the solver's
    model of the chosen plan.
    """

    status: PlanStatus
    made_at: datetime
    allocations: tuple[Allocation, ...]
    forecasts: tuple[tuple[str, Forecast], ...]
    candidates: tuple[Candidate, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    objective_usd: float | None = None
    bound_usd: float | None = None
    gap: float | None = None
    solver: str = ""
    solve_s: float = 0.0
    build_s: float = 0.0
    binding: str | None = None
    unserved: tuple[str, ...] = ()
    proposals: tuple[tuple[str, Forecast], ...] = ()

    def forecast_of(self, job: str) -> Forecast | None:
        """Return the forecast of one job, or None."""
        return dict(self.forecasts).get(job)

    def proposal_of(self, job: str) -> Forecast | None:
        """Return what following the allocations of one job comes to, or None."""
        return dict(self.proposals).get(job) or self.forecast_of(job)


@dataclass(frozen=True, slots=True)
class HourlyPlan:
    """What a plan of jobs that share limits holds for one of them, in hours from ``from_at`` on.

    ``usd_micros`` and ``wh`` are its own by hour, ``wh`` None where a node's power is unknown.
    ``prices`` are by limit that binds, by hour: dollars that one more unit would save in an hour,
    of a budget per dollar or kWh.
    """

    from_at: datetime
    usd_micros: tuple[int, ...]
    wh: tuple[float | None, ...]
    prices: tuple[tuple[str, tuple[float, ...]], ...] = ()
