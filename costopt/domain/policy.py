"""Preferences and limits. A policy never names a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from costopt.domain.market import CapacityType, Pool


class CarbonSignal(StrEnum):
    """Which carbon intensity counts: the two reverse the ranking of regions, so it is a choice."""

    AVERAGE = "average"
    MARGINAL = "marginal"


class ObjectiveTerm(StrEnum):
    """A figure of a plan of which less is better."""

    USD = "usd"
    KWH = "kwh"
    CO2E = "co2e"
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class Objective:
    """Minimize usd · $ + usd_per_kwh · kWh + usd_per_tonne_co2e · tCO2e (all in dollars).

    ``then`` are aims for the choice among plans that are nearly as good, one after the other: each
    may make what comes before it, the objective first, worse by at most the share ``tolerance``.
    """

    usd: float = 1.0
    usd_per_kwh: float = 0.0
    usd_per_tonne_co2e: float = 0.0
    carbon_signal: CarbonSignal = CarbonSignal.AVERAGE
    then: tuple[ObjectiveTerm, ...] = ()
    tolerance: float = 1e-3

    def score_usd(self, usd: float, kwh: float, gco2e: float) -> float:
        """The objective's value for a plan's figures; those without a weight may be NaN."""
        score = self.usd * usd
        if self.usd_per_kwh:
            score += self.usd_per_kwh * kwh
        if self.usd_per_tonne_co2e:
            score += self.usd_per_tonne_co2e * gco2e / 1e6
        return score


@dataclass(frozen=True, slots=True)
class Risk:
    """How sure a plan must be, and how many seconds are held back besides the job's overhead."""

    on_time: float = 0.95
    reserve_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Guards and filters; None or empty is no limit.

    ``max_kw`` is what all nodes together may draw at the meter. ``power_caps`` allows plans that
    limit the power of GPUs, which needs the right to set it on the nodes.
    """

    max_usd: float | None = None
    max_usd_per_hour: float | None = None
    max_usd_per_month: float | None = None
    max_price_age_s: float | None = 3600.0
    max_price_ratio: float | None = 1.5
    max_nodes: int | None = None
    max_launches_per_hour: int | None = 60
    max_zone_share: float | None = None
    max_kw: float | None = None
    power_caps: bool = False
    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    capacity_types: tuple[CapacityType, ...] = (
        CapacityType.SPOT,
        CapacityType.ON_DEMAND,
        CapacityType.RESERVED,
    )

    def rejection_reason(self, pool: Pool) -> str | None:
        """Why the policy does not allow ``pool``, or None where it does."""
        if self.providers and pool.provider not in self.providers:
            return f"provider {pool.provider} not allowed by the policy"
        if self.regions and pool.region not in self.regions:
            return f"region {pool.region} not allowed by the policy"
        if self.capacity_types and pool.capacity_type not in self.capacity_types:
            return f"capacity type {pool.capacity_type.value} not allowed by the policy"
        return None

    def tightened(self, by: Limits) -> Limits:
        """These, with each maximum lowered to ``by``'s where that is lower, and each list of what
        is allowed narrowed to what ``by`` allows too. A list of which nothing would remain stays;
        ``power_caps``, which costs nothing, stays too."""
        tighter = {name: _tighter(getattr(self, name), getattr(by, name)) for name in _BOUNDS}
        return replace(self, **tighter)

    def loosened_by(self, other: Limits) -> tuple[str, ...]:
        """Names of the fields of which ``other`` allows more, ``power_caps`` apart."""
        return tuple(
            name for name in _BOUNDS if _is_looser(getattr(other, name), getattr(self, name))
        )


_BOUNDS = tuple(field.name for field in fields(Limits) if field.name != "power_caps")


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
    """The algorithm that decides, with its parameters."""

    name: str = "adaptive"
    parameters: Mapping[str, float | int | str | bool] = field(default_factory=dict)


class RuleSignal(StrEnum):
    """What a rule looks at."""

    TIME_OF_DAY = "time_of_day"
    QUEUE_LENGTH = "queue_length"
    SLACK = "slack"


@dataclass(frozen=True, slots=True)
class Rule:
    """While the trigger holds (low ≤ signal < high), the policy's limits are tightened by ``then``,
    never loosened; its ``power_caps`` applies where it is not the policy's.

    Signals: time_of_day in hours UTC (a window may cross midnight), queue_length in jobs,
    slack in hours.
    """

    name: str
    trigger: RuleSignal
    low: float
    high: float
    then: Limits

    def is_active(self, signal: float) -> bool:
        """Whether the rule applies at this value of its signal."""
        if self.low <= self.high:
            return self.low <= signal < self.high
        return signal >= self.low or signal < self.high


@dataclass(frozen=True, slots=True)
class Policy:
    """What to minimize, how sure to be, by which strategy and within which limits."""

    name: str
    objective: Objective = Objective()
    risk: Risk = Risk()
    strategy: StrategySpec = field(default_factory=StrategySpec)
    limits: Limits = Limits()
    rules: tuple[Rule, ...] = ()
