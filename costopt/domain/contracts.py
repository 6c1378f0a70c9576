"""Contracts for electricity, by which market-based emissions are counted.

A contract states what a provider's electricity emits by what was bought for it; a residual mix is
the published mix for consumers without one. Market-based figures stand beside the location-based
ones and are never assumed: what no contract and no residual mix covers is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from costopt.domain.period import ALWAYS, Period


class ContractKind(StrEnum):
    """What a row states; where both cover an hour, the contract counts."""

    CONTRACT = "contract"
    RESIDUAL_MIX = "residual_mix"


@dataclass(frozen=True, slots=True)
class ElectricityContract:
    """gCO2e/kWh of a provider's electricity in ``regions``, all of them where empty."""

    name: str
    provider: str
    gco2e_per_kwh: float
    regions: tuple[str, ...] = ()
    period: Period = ALWAYS
    kind: ContractKind = ContractKind.CONTRACT

    def overlaps(self, other: ElectricityContract) -> bool:
        """Return whether both state the same kind of figure for a region at some instant."""
        return (
            self.kind is other.kind
            and self.provider == other.provider
            and (not self.regions or not other.regions or bool({*self.regions} & {*other.regions}))
            and self.period.overlaps(other.period)
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
        contract.period.begins_at,
        contract.period.ends_at,
        contract.kind,
    )
