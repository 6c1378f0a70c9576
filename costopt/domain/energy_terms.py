"""Which terms count energy: a pool whose power is unknown can satisfy none of them."""

from __future__ import annotations

from collections.abc import Iterable

from costopt.domain.job import Job
from costopt.domain.limits import Resource
from costopt.domain.market import InstanceType, Pool
from costopt.domain.policy import Limits, ObjectiveTerm, Policy
from costopt.domain.quota import Quota


def energy_term(
    policy: Policy, job: Job, quotas: Iterable[Quota], pool: Pool, machine: InstanceType
) -> str | None:
    """Return the first term that rests on the watts of the job's nodes in ``pool``, in words.

    None where neither the policy, with the limits of all its rules, nor the job's budget nor a
    quota that counts these nodes needs them.
    """
    if job.budget.max_kwh is not None:
        return "the job has a budget in kWh"
    for quota in quotas:
        counted = quota.tenant in (None, job.tenant) and quota.matches(pool, machine)
        if counted and any(resource is Resource.KW for resource, _ in quota.limits()):
            return f"the quota {quota.name} limits kilowatts"
    return _policy_term(policy)


def _policy_term(policy: Policy) -> str | None:
    objective = policy.objective
    if objective.usd_per_kwh or ObjectiveTerm.KWH in objective.then:
        return "the policy weighs energy"
    if objective.usd_per_tonne_co2e or ObjectiveTerm.CO2E in objective.then:
        return "the policy weighs carbon"
    if _limits_kw(policy.limits):
        return "the policy limits kilowatts"
    limiting = (rule.name for rule in policy.rules if _limits_kw(rule.then))
    rule = next(limiting, None)
    return None if rule is None else f"the policy's rule {rule} limits kilowatts"


def _limits_kw(limits: Limits) -> bool:
    return any(resource is Resource.KW for _, resource, _ in limits.concurrent())
