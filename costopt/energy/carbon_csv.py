"""Imports hourly carbon intensities: a CSV with a column of hours and one per grid zone.

The first column is the beginning of the hour, in UTC where it does not say otherwise; the others
are named by zones as Electricity Maps names them (DE, US-CAL-CISO), in gCO2e/kWh. An empty cell,
and every hour that the file leaves out, is a gap: never filled in.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from costopt.domain.errors import SignalError
from costopt.domain.policy import CarbonSignal
from costopt.energy.carbon_history import HOUR, CarbonHistory

MAX_HOURS = 24 * 366 * 20


def import_carbon_csv(
    path: Path, carbon_signal: CarbonSignal = CarbonSignal.AVERAGE
) -> CarbonHistory:
    """The zones of the file (plain or .gz). Raises SignalError with line and column."""
    header, rows = _read(path)
    hours = _hours(path, rows)
    count = (hours[-1] - hours[0]) // HOUR + 1
    if count > MAX_HOURS:
        raise SignalError(f"{path} spans {count} hours", hint="check the years of its times")
    zones: dict[str, list[float | None]] = {zone: [None] * count for zone in header[1:]}
    for number, (hour, row) in enumerate(zip(hours, rows, strict=True), start=2):
        for zone, cell in zip(header[1:], row[1:], strict=True):
            zones[zone][(hour - hours[0]) // HOUR] = _intensity(path, number, zone, cell)
    return CarbonHistory(
        starts_at=hours[0],
        zones={zone: tuple(values) for zone, values in zones.items()},
        carbon_signal=carbon_signal,
        source=f"{carbon_signal.value} intensities of {path.name}",
    )


def _read(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise SignalError(
            f"{path} cannot be read: {error}", hint="download it again", code="unreadable"
        ) from error
    header, *rows = list(csv.reader(io.StringIO(text))) or [[]]
    if len(header) < 2 or not all(header[1:]) or len(set(header)) != len(header):
        raise SignalError(
            f"{path}, line 1: no column of hours followed by columns of zones, each once",
            hint="the first line reads like: hour_utc,DE,FR,US-CAL-CISO",
        )
    if not rows:
        raise SignalError(f"{path} holds no hour", hint="one line per hour follows the first")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise SignalError(f"{path}, line {number}: {len(row)} cells, the header {len(header)}")
    return header, rows


def _hours(path: Path, rows: Sequence[Sequence[str]]) -> list[datetime]:
    hours: list[datetime] = []
    for number, row in enumerate(rows, start=2):
        try:
            hour = datetime.fromisoformat(row[0])
        except ValueError as error:
            raise SignalError(f"{path}, line {number}: {row[0]!r} is no time") from error
        hour = hour.replace(tzinfo=UTC) if hour.tzinfo is None else hour.astimezone(UTC)
        if hour != hour.replace(minute=0, second=0, microsecond=0):
            raise SignalError(
                f"{path}, line {number}: {row[0]} is no full hour", hint="store means per hour"
            )
        if hours and hour <= hours[-1]:
            raise SignalError(f"{path}, line {number}: not after the line before it")
        hours.append(hour)
    return hours


def _intensity(path: Path, number: int, zone: str, cell: str) -> float | None:
    if not cell.strip():
        return None
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise SignalError(
            f"{path}, line {number}, column {zone}: {cell!r} is no intensity",
            hint="gCO2e per kWh, 0 or more; empty means not recorded",
        )
    return value
