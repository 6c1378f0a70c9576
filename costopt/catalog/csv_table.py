"""Readers of the CSV tables beside this package. An empty cell is unknown."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from pathlib import Path

Row = dict[str, str]

_DATA = Path(__file__).parent / "data"


def read_table(name: str, folder: Path = _DATA) -> tuple[Row, ...]:
    """The rows of ``<folder>/<name>.csv``, in order."""
    with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


def parse_number(cell: str) -> float | None:
    """A figure, or None where the cell is empty."""
    return float(cell) if cell else None


def parse_day(cell: str) -> datetime:
    """The first instant (UTC) of an ISO day."""
    return datetime.fromisoformat(cell).replace(tzinfo=UTC)
