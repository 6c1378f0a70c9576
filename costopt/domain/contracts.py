"""Contracts for electricity, by which market-based emissions are counted.

A contract states what a provider's electricity emits by what was bought for it; a residual mix is
the published mix for consumers without one. Market-based figures stand beside the location-based
ones and are never assumed: what no contract and no residual mix covers is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum


class ContractKind(StrEnum):
    """What a row states; where both cover an hour, the contract counts."""

    CONTRACT = "contract"
    RESIDUAL_MIX = "residual_mix"


@dataclass(frozen=True, slots=True)
class ElectricityContract:
    """gCO2e/kWh of a provider's electricity in ``regions``, all of them where empty, from the
    first through the last day (UTC); None: without a beginning or an end."""

    name: str
    provider: str
    gco2e_per_kwh: float
    regions: tuple[str, ...] = ()
    first_day: date | None = None
    last_day: date | None = None
    kind: ContractKind = ContractKind.CONTRACT

    @property
    def begins_at(self) -> datetime | None:
        """Return the first instant, None where it has none."""
        return None if self.first_day is None else midnight(self.first_day)

    @property
    def ends_at(self) -> datetime | None:
        """Return the first instant after it, None where it does not end."""
        return None if self.last_day is None else midnight(self.last_day + timedelta(days=1))

    def overlaps(self, other: ElectricityContract) -> bool:
        """Return whether both state the same kind of figure for a region at some instant."""
        return (
            self.kind is other.kind
            and self.provider == other.provider
            and (not self.regions or not other.regions or bool({*self.regions} & {*other.regions}))
            and (self.first_day or date.min) <= (other.last_day or date.max)
            and (other.first_day or date.min) <= (self.last_day or date.max)
        )


ContractTerms = tuple[
    str, str, float, tuple[str, ...], datetime | None, datetime | None, ContractKind
]
"""A contract as events hold it: name, provider, gCO2e/kWh, regions, beginning, end, kind."""


def contract_terms(contract: ElectricityContract) -> ContractTerms:
    """Return the contract as events hold it."""
    return (
        contract.name,
        contract.provider,
        float(contract.gco2e_per_kwh),
        contract.regions,
        contract.begins_at,
        contract.ends_at,
        contract.kind,
    )


def midnight(day: date) -> datetime:
    """Return the beginning of the day (UTC)."""
    return datetime.combine(day, time(), UTC)
