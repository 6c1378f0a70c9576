"""Recorded carbon intensities, with the catalogue's regions."""

from __future__ import annotations

from costopt.catalog import load_catalog
from costopt.energy.carbon_history import CarbonHistory
from costopt.energy.carbon_record import RecordedCarbon


def recorded_carbon(history: CarbonHistory | None) -> RecordedCarbon | None:
    """The history by region, None where none was given."""
    return None if history is None else RecordedCarbon(history, load_catalog().region)
