"""Regions as the table states them."""

from __future__ import annotations

from costopt.catalog.table import parse_number, read_table
from costopt.domain.market import Region

RegionKey = tuple[str, str]
"""Provider and region."""


def read_regions() -> dict[RegionKey, Region]:
    """The newest year of each region; a figure that was not published is None."""
    return {
        (row["provider"], row["region"]): Region(
            provider=row["provider"],
            name=row["region"],
            pue=parse_number(row["pue"]),
            average_gco2e_per_kwh=parse_number(row["average_gco2e_per_kwh"]),
            marginal_gco2e_per_kwh=parse_number(row["marginal_gco2e_per_kwh"]),
            electricity_maps_zone=row["electricity_maps_zone"] or None,
            year=int(row["year"]),
            source=row["source"],
        )
        for row in read_table("regions")
    }
