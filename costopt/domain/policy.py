"""Policies: objective, risk, limits, rules and strategy. A policy never names a job.

Also which terms depend on energy: a pool whose power is unknown cannot satisfy any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any

from costopt.domain.account import Quota
from costopt.domain.declared import (
    Bounds,
    Count,
    Dollars,
    Duration,
    Length,
    Name,
    NotNegative,
    Positive,
    Share,
    Text,
    described,
)
from costopt.domain.gpu_health import HealthRules
from costopt.domain.job import Job
from costopt.domain.limits import LimitScope, LimitSpec, LimitUnit, Resource, limit_row, limit_specs
from costopt.domain.market import CapacityType, InstanceType, Pool


class CarbonSignal(StrEnum):
    """Which carbon intensity counts: the two rank regions in opposite orders, so it is a choice."""

    AVERAGE = "average"
    MARGINAL = "marginal"


class ObjectiveTerm(StrEnum):
    """A figure of a plan to minimize."""

    USD = "usd"
    KWH = "kwh"
    CO2E = "co2e"
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class Objective:
    """What is minimized: usd · $ + usd_per_kwh · kWh + usd_per_tonne_co2e · t, in dollars."""

    usd: NotNegative = field(default=1.0, metadata=described("weight of a dollar spent"))
    usd_per_kwh: NotNegative = field(
        default=0.0, metadata=described("dollars that a kilowatt-hour counts for")
    )
    usd_per_tonne_co2e: NotNegative = field(
        default=0.0, metadata=described("dollars that a tonne of CO2e counts for")
    )
    carbon_signal: CarbonSignal = field(
        default=CarbonSignal.AVERAGE,
        metadata=described("which carbon intensity of the grid counts"),
    )
    then: Annotated[tuple[ObjectiveTerm, ...], Length(max=len(ObjectiveTerm))] = field(
        default=(),
        metadata=described(
            "among plans that are nearly as good, less of these, one after the other: "
            "usd, kwh, co2e, finish"
        ),
    )
    tolerance: Annotated[float, Bounds(ge=0, le=0.5)] = field(
        default=1e-3,
        metadata=described("share by which each of them may make what comes before it worse"),
    )

    def score_usd(self, usd: float, kwh: float, gco2e: float) -> float:
        """Return the objective's value for a plan's figures; those without a weight may be NaN."""
        score = self.usd * usd
        if self.usd_per_kwh:
            score += self.usd_per_kwh * kwh
        if self.usd_per_tonne_co2e:
            score += self.usd_per_tonne_co2e * gco2e / 1e6
        return score

    def plus(self, other: Objective, times: float) -> Objective:
        """Return this objective with ``times`` the other's weights on top."""
        return replace(
            self,
            usd=self.usd + times * other.usd,
            usd_per_kwh=self.usd_per_kwh + times * other.usd_per_kwh,
            usd_per_tonne_co2e=self.usd_per_tonne_co2e + times * other.usd_per_tonne_co2e,
        )


@dataclass(frozen=True, slots=True)
class Risk:
    """How sure a plan must be."""

    on_time: Annotated[float, Bounds(gt=0, lt=1)] = field(
        default=0.95, metadata=described("least probability of finishing by the deadline")
    )
    reserve_s: Duration = field(
        default=600.0,
        metadata=described("time held back besides the job's own start-up and restore"),
    )


@dataclass(frozen=True, slots=True)
class Limits:
    """Guards and filters; None or empty does not limit.

    Each field is a row of the limits table: optimizer, engine, infeasibility messages, pages and
    the policy file's schema are driven by it. ``max_kw`` is what all nodes together may draw at the
    meter. ``power_caps`` allows plans that limit the power of GPUs, which needs the right to set it
    on the nodes.
    """

    max_usd: Dollars | None = field(
        default=None,
        metadata=limit_row(
            "dollars in all", LimitUnit.USD, LimitScope.JOB, "dollars of one job in total"
        ),
    )
    max_usd_per_hour: Dollars | None = field(
        default=None,
        metadata=limit_row(
            "dollars per hour",
            LimitUnit.USD,
            LimitScope.CONCURRENT,
            "dollars per hour of everything that runs",
            resource=Resource.USD_PER_HOUR,
        ),
    )
    max_usd_per_month: Dollars | None = field(
        default=None,
        metadata=limit_row(
            "dollars per calendar month",
            LimitUnit.USD,
            LimitScope.MONTH,
            "dollars in a calendar month of all of a tenant's jobs under policies of this "
            "name, those that are over included",
        ),
    )
    max_price_age_s: Duration | None = field(
        default=3600.0,
        metadata=limit_row(
            "age of a price",
            LimitUnit.SECONDS,
            LimitScope.PRICE,
            "prices older than this are not launched on",
        ),
    )
    max_price_ratio: Annotated[float, Bounds(ge=1, le=1000)] | None = field(
        default=1.5,
        metadata=limit_row(
            "times the planned price",
            LimitUnit.RATIO,
            LimitScope.PRICE,
            "realized over planned price beyond which a node stops",
        ),
    )
    max_nodes: Count | None = field(
        default=None,
        metadata=limit_row(
            "nodes",
            LimitUnit.NUMBER,
            LimitScope.CONCURRENT,
            "nodes of all jobs at once",
            resource=Resource.NODES,
        ),
    )
    max_launches_per_hour: Count | None = field(
        default=60,
        metadata=limit_row(
            "launches per hour",
            LimitUnit.NUMBER,
            LimitScope.LAUNCHES,
            "nodes launched within any hour, those of owned clusters apart",
        ),
    )
    max_zone_share: Share | None = field(
        default=None,
        metadata=limit_row(
            "share of the nodes in one zone",
            LimitUnit.SHARE,
            LimitScope.GANG,
            "largest share of the nodes in one zone",
        ),
    )
    max_kw: Positive | None = field(
        default=None,
        metadata=limit_row(
            "kilowatts",
            LimitUnit.KW,
            LimitScope.CONCURRENT,
            "kilowatts of all nodes at once while they train, at the data centre's meter",
            resource=Resource.KW,
        ),
    )
    power_caps: bool = field(
        default=False,
        metadata=limit_row(
            "power caps on GPUs",
            LimitUnit.FLAG,
            LimitScope.GANG,
            "plans may cap the power of GPUs where that saves energy; "
            "agents need the right to set it",
        ),
    )
    power_sweep: bool = field(
        default=False,
        metadata=limit_row(
            "power-limit sweeps",
            LimitUnit.FLAG,
            LimitScope.GANG,
            "with power_caps: where no caps of a GPU are known, a job with slack measures itself "
            "under four lower limits, once",
        ),
    )
    providers: Annotated[tuple[Text, ...], Length(min=1)] = field(
        default=(),
        metadata=limit_row(
            "providers",
            LimitUnit.NAMES,
            LimitScope.POOL,
            "allowed; default: all",
            pool_field="provider",
        ),
    )
    regions: Annotated[tuple[Text, ...], Length(min=1)] = field(
        default=(),
        metadata=limit_row(
            "regions",
            LimitUnit.NAMES,
            LimitScope.POOL,
            "allowed; default: all",
            pool_field="region",
        ),
    )
    capacity_types: Annotated[tuple[CapacityType, ...], Length(min=1)] = field(
        default=(CapacityType.SPOT, CapacityType.ON_DEMAND, CapacityType.RESERVED),
        metadata=limit_row(
            "capacity types",
            LimitUnit.CAPACITY_TYPES,
            LimitScope.POOL,
            "on which terms nodes may be rented",
            pool_field="capacity_type",
        ),
    )

    def maximum(self, spec: LimitSpec) -> float | None:
        """Return the maximum that a limit on an amount sets; None if it does not limit."""
        most: float | None = getattr(self, spec.field)
        return most

    def concurrent(self) -> Iterator[tuple[LimitSpec, Resource, float]]:
        """Yield the limits on concurrent use that are set: row, resource and maximum."""
        for spec in CONCURRENT_LIMITS:
            most = self.maximum(spec)
            if most is not None and spec.resource is not None:
                yield spec, spec.resource, float(most)

    def with_maxima(self, specs: Iterable[LimitSpec], most: float | None) -> Limits:
        """Return these limits with ``most`` as the maximum of each of ``specs``."""
        changed: dict[str, Any] = {spec.field: most for spec in specs}
        return replace(self, **changed)

    def rejection_reason(self, pool: Pool) -> str | None:
        """Return why the policy does not allow ``pool``, or None where it does."""
        for spec in POOL_LIMITS:
            assert spec.pool_field is not None
            allowed, actual = getattr(self, spec.field), getattr(pool, spec.pool_field)
            # What a commitment pays for is launched on demand.
            launched = getattr(pool.uncommitted, spec.pool_field)
            if allowed and actual not in allowed and launched not in allowed:
                return f"{spec.pool_field.replace('_', ' ')} {actual} not allowed by the policy"
        return None

    def tightened(self, by: Limits) -> Limits:
        """Return these limits, each maximum lowered to ``by``'s where that is lower, each list of
        allowed values reduced to what ``by`` allows too. A list that would become empty stays;
        ``power_caps``, which costs nothing, and ``power_sweep`` stay too."""
        tighter = {name: _tighter(getattr(self, name), getattr(by, name)) for name in _BOUNDS}
        return replace(self, **tighter)

    def loosened_by(self, other: Limits) -> tuple[str, ...]:
        """Return the names of the fields that ``other`` makes looser, except flags."""
        return tuple(
            name for name in _BOUNDS if _is_looser(getattr(other, name), getattr(self, name))
        )


LIMIT_SPECS: Mapping[str, LimitSpec] = {spec.field: spec for spec in limit_specs(Limits)}
"""The table of limits, by field."""

CONCURRENT_LIMITS = tuple(s for s in LIMIT_SPECS.values() if s.scope is LimitScope.CONCURRENT)
POOL_LIMITS = tuple(s for s in LIMIT_SPECS.values() if s.scope is LimitScope.POOL)
BUDGET_LIMITS = tuple(s for s in LIMIT_SPECS.values() if s.is_budget)

_BOUNDS = tuple(s.field for s in LIMIT_SPECS.values() if s.unit is not LimitUnit.FLAG)


def _tighter(own: Any, by: Any) -> Any:
    if isinstance(own, tuple):
        both = tuple(each for each in own if each in by) if own and by else own or by
        return both or own
    return min((each for each in (own, by) if each is not None), default=None)


def _is_looser(other: Any, own: Any) -> bool:
    if isinstance(own, tuple):
        return bool(own) and (not other or not set(other) <= set(own))
    return own is not None and (other is None or other > own)


@dataclass(frozen=True, slots=True)
class StrategySpec:
    """The algorithm that decides."""

    name: Name = field(
        default="adaptive",
        metadata=described(
            "adaptive, milp, uniform_progress, greedy_spot, on_demand, or one that another "
            "package brings"
        ),
    )
    parameters: Mapping[str, float | int | str | bool] = field(
        default_factory=dict, metadata=described("the strategy's own parameters")
    )


class RuleSignal(StrEnum):
    """What the trigger of a rule measures."""

    TIME_OF_DAY = "time_of_day"
    QUEUE_LENGTH = "queue_length"
    SLACK = "slack"


@dataclass(frozen=True, slots=True)
class Rule:
    """While low ≤ signal < high, ``then`` tightens the limits that it names.

    Its ``power_caps`` applies where it is not the policy's, and sweeps need both. A window of hours
    may cross midnight.
    """

    name: Name = field(metadata=described("the rule's name"))
    trigger: RuleSignal = field(
        metadata=described("time_of_day (hours UTC), queue_length (jobs) or slack (hours)")
    )
    low: Annotated[float, Bounds(ge=-1e6, le=1e6)] = field(
        metadata=described("the signal's lower bound")
    )
    high: Annotated[float, Bounds(ge=-1e6, le=1e6)] = field(
        metadata=described("the bound that the signal stays below")
    )
    then: Limits = field(
        metadata=described(
            "tighter limits while the rule holds; the others stay, and none is loosened"
        )
    )

    def is_active(self, signal: float) -> bool:
        """Return whether the rule applies at this value of its signal."""
        if self.low <= self.high:
            return self.low <= signal < self.high
        return signal >= self.low or signal < self.high


@dataclass(frozen=True, slots=True)
class Policy:
    """What to minimize, at which risk, by which strategy and within which limits, and what is done
    about unhealthy nodes."""

    name: str
    objective: Objective = Objective()
    risk: Risk = Risk()
    strategy: StrategySpec = field(default_factory=StrategySpec)
    limits: Limits = Limits()
    rules: tuple[Rule, ...] = ()
    health: HealthRules = field(default_factory=HealthRules)


def energy_term(
    policy: Policy, job: Job, quotas: Iterable[Quota], pool: Pool, machine: InstanceType
) -> str | None:
    """Return the first term that depends on the watts of the job's nodes in ``pool``, in words.

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
