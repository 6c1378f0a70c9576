"""Contracts for electricity, by which market-based emissions are counted.

A contract states what a provider's electricity emits by what was bought for it; a residual mix is
the published mix for consumers without one. Market-based figures stand beside the location-based
ones and are never assumed: what no contract and no residual mix covers is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
        return None if self.first_day is None else _midnight(self.first_day)

    @property
    def ends_at(self) -> datetime | None:
        """Return the first instant after it, None where it does not end."""
        return None if self.last_day is None else _midnight(self.last_day + timedelta(days=1))

    def covers(self, provider: str, region: str, at: datetime) -> bool:
        """Return whether it states the electricity of the region at ``at``."""
        return (
            self.provider == provider
            and (not self.regions or region in self.regions)
            and (self.begins_at is None or self.begins_at <= at)
            and (self.ends_at is None or at < self.ends_at)
        )

    def overlaps(self, other: ElectricityContract) -> bool:
        """Return whether both state the same kind of figure for a region at some instant."""
        return (
            self.kind is other.kind
            and self.provider == other.provider
            and (not self.regions or not other.regions or bool({*self.regions} & {*other.regions}))
            and (self.first_day or date.min) <= (other.last_day or date.max)
            and (other.first_day or date.min) <= (self.last_day or date.max)
        )


def find_contract(
    contracts: Sequence[ElectricityContract], provider: str, region: str, at: datetime
) -> ElectricityContract | None:
    """Return what states the region's electricity at ``at``: a contract, else a residual mix, else
    None."""
    found = [each for each in contracts if each.covers(provider, region, at)]
    return next(
        (each for kind in ContractKind for each in found if each.kind is kind),
        None,
    )


def contract_edges(contracts: Iterable[ElectricityContract]) -> frozenset[datetime]:
    """Return every instant at which a contract begins or ends."""
    edges = (edge for each in contracts for edge in (each.begins_at, each.ends_at))
    return frozenset(edge for edge in edges if edge is not None)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
