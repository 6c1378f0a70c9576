"""What-if: one policy, one deadline, one set of terms and one tolerance at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

from costopt.domain.account import Account
from costopt.domain.errors import StaleDataError
from costopt.domain.job import Job
from costopt.domain.market import CapacityType
from costopt.domain.plan import Forecast, Plan, PlanStatus
from costopt.domain.policy import ObjectiveTerm, Policy
from costopt.planning.quotes import QuoteSet

Capacity = Literal["policy", "spot", "on_demand", "both"]
"""A restriction of the capacity types that a policy allows; "policy" restricts nothing."""

POLICY_TERMS: Capacity = "policy"
TERMS: dict[Capacity, tuple[CapacityType, ...]] = {
    "spot": (CapacityType.SPOT,),
    "on_demand": (CapacityType.ON_DEMAND,),
    "both": (CapacityType.SPOT, CapacityType.ON_DEMAND),
    POLICY_TERMS: (),
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """One policy, one deadline, one set of terms, and the plan made of them.

    ``tolerance`` is the share by which the objective may be worse for the sake of its further aims,
    None where the policy's own counts. ``plan`` is None where the policy allows none of the terms,
    or every price is too old (``stale``): ``why_not`` says which.
    """

    job: Job
    policy: Policy
    terms: Capacity
    plan: Plan | None
    why_not: str | None
    stale: bool = False
    tolerance: float | None = None

    @property
    def forecast(self) -> Forecast | None:
        """What the plan is expected to come to, None where there is none."""
        if self.plan is None or self.plan.status is PlanStatus.INFEASIBLE:
            return None
        return self.plan.forecast_of(self.job.name)


def plan_scenarios(
    jobs: Sequence[Job],
    policies: Sequence[Policy],
    terms: Sequence[Capacity],
    seen: QuoteSet,
    account: Account,
    tolerances: Sequence[float] = (),
) -> tuple[Scenario, ...]:
    """Return a scenario for each policy, job, name of terms and tolerance, in this order."""
    varied = product(policies, jobs, terms, tolerances or (None,))
    return tuple(
        replace(
            plan_scenario(
                job,
                _tolerating(policy, tolerance),
                each,
                seen,
                account,
                followed=bool(tolerances),
            ),
            tolerance=tolerance,
        )
        for policy, job, each, tolerance in varied
    )


def _tolerating(policy: Policy, tolerance: float | None) -> Policy:
    """The policy with this tolerance for its further aims; for energy where it names none."""
    if tolerance is None:
        return policy
    aims = (policy.objective.then or (ObjectiveTerm.KWH,)) if tolerance > 0 else ()
    objective = replace(
        policy.objective, then=aims, tolerance=tolerance or policy.objective.tolerance
    )
    return replace(policy, objective=objective)


def plan_scenario(
    job: Job,
    policy: Policy,
    terms: Capacity,
    seen: QuoteSet,
    account: Account,
    *,
    followed: bool = False,
) -> Scenario:
    """Return the plan of one policy for one job on the terms of this name.

    ``followed``: with the forecast of following the plan, so that plans can be compared.
    """
    from costopt.planning.request import plan_job

    narrowed = narrow_policy(policy, terms)
    if narrowed is None:
        return Scenario(job, policy, terms, None, f"the policy does not allow {terms}")
    try:
        made = plan_job(job, narrowed, seen, explain=False, account=account, followed=followed)
    except StaleDataError as error:
        return Scenario(job, policy, terms, None, error.message, stale=True)
    return Scenario(job, policy, terms, made, made.binding)


def forecast_notes(scenarios: Sequence[Scenario]) -> Iterator[str]:
    """Yield a sentence on what forecasts rest on, where replays alone would say."""
    from costopt.planning.forecast.replay_forecast import replay_notes

    # With tolerances, plans are compared.
    decided = [each for each in scenarios if each.tolerance is None]
    for strategy in dict.fromkeys(each.policy.strategy.name for each in decided):
        own = [each for each in decided if each.policy.strategy.name == strategy]
        yield from replay_notes(own[0].policy, (each.plan for each in own))


def narrow_policy(policy: Policy, terms: Capacity) -> Policy | None:
    """Return the policy on the terms of this name, None where it allows none of them."""
    allowed = policy.limits.capacity_types
    kept = tuple(each for each in TERMS[terms] if each in allowed) if TERMS[terms] else allowed
    return replace(policy, limits=replace(policy.limits, capacity_types=kept)) if kept else None


def non_dominated_scenarios(scenarios: Sequence[Scenario]) -> Iterator[int]:
    """Numbers of the scenarios that none other surely beats in dollars and kWh."""
    from costopt.optimize.pareto import surely_unbeaten

    planned = [index for index, scenario in enumerate(scenarios) if scenario.forecast is not None]
    forecasts = [forecast for each in scenarios if (forecast := each.forecast) is not None]
    for index, unbeaten in zip(planned, surely_unbeaten(forecasts), strict=True):
        if unbeaten:
            yield index
