"""Traits of providers: differences that are facts, not code. Each is a row of ``providers.csv``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cache

from costopt.catalog.csv_table import Row, parse_number, read_table
from costopt.domain.errors import CatalogError
from costopt.domain.estimate import Estimate
from costopt.domain.hazards import hazard_from_daily_shares

REGION, LETTER = "{region}", "{letter}"


@dataclass(frozen=True, slots=True)
class ProviderTraits:
    """``zone_name`` builds a zone's name, as in "{region}-{letter}"; None where it is not known.

    ``region_variables`` are the environment variables in which users of the provider's own tools
    keep their region, first to last. ``pue`` is the mean of the fleet, for regions without a
    figure of their own. ``interrupted_per_day`` are the lowest and the highest share of spot nodes
    that the provider says it interrupts, None where it says nothing. ``title`` is the provider's
    name, ``compute_service`` and ``transfer_service`` those of the services that rent nodes and
    move data, as on its bills; "" where they are not known.
    """

    provider: str
    zone_name: str | None = None
    region_variables: tuple[str, ...] = ()
    pue: float | None = None
    interrupted_per_day: tuple[float, float] | None = None
    interruption_source: str = ""
    title: str = ""
    compute_service: str = ""
    transfer_service: str = ""

    def zone(self, region: str, letter: str) -> str:
        """Return the name of a region's zone. Raises CatalogError where it is not known."""
        return self._zone_name().format(region=region, letter=letter)

    def region_of_zone(self, zone: str) -> str:
        """Return the region: us-east-1 of us-east-1a (aws), us-central1 of us-central1-a (gcp).

        Raises CatalogError where the provider's way of naming zones is not known.
        """
        separator = self._zone_name().removeprefix(REGION).removesuffix(LETTER)
        return zone.rpartition(separator)[0] if separator else zone[:-1]

    def spot_hazard_per_hour(self, observed_at: datetime) -> Estimate | None:
        """Return interruptions per node-hour as a prior, None where nothing is published."""
        if self.interrupted_per_day is None:
            return None
        return hazard_from_daily_shares(
            *self.interrupted_per_day, self.interruption_source, observed_at
        )

    def _zone_name(self) -> str:
        if self.zone_name is None:
            raise CatalogError(
                f"how provider {self.provider!r} names its zones is not in the catalogue",
                hint="add zone_name to its row of costopt/catalog/data/providers.csv",
            )
        return self.zone_name


def find_traits(provider: str) -> ProviderTraits:
    """Return the provider's row; without one, everything is unknown."""
    return _read_traits().get(provider) or ProviderTraits(provider)


@cache
def _read_traits() -> dict[str, ProviderTraits]:
    return {row["provider"]: _traits(row) for row in read_table("providers")}


def _traits(row: Row) -> ProviderTraits:
    low = parse_number(row["interrupted_per_day_low"])
    high = parse_number(row["interrupted_per_day_high"])
    return ProviderTraits(
        provider=row["provider"],
        zone_name=row["zone_name"] or None,
        region_variables=tuple(row["region_variables"].split()),
        pue=parse_number(row["pue"]),
        interrupted_per_day=None if low is None or high is None else (low, high),
        interruption_source=row["interruption_source"],
        title=row["title"],
        compute_service=row["compute_service"],
        transfer_service=row["transfer_service"],
    )
