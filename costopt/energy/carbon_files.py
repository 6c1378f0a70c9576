"""A carbon history as a parquet file.

The parquet file has one row per hour and one column per grid zone: ``starts_at`` (timestamps with a
time zone, hourly without holes) and the zones, in gCO2e/kWh; a null means: not recorded. The
schema's metadata holds ``carbon_signal`` and ``source``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from costopt.domain.errors import SignalError
from costopt.domain.policy import CarbonSignal
from costopt.energy.carbon import HOUR, CarbonHistory

TIME = "starts_at"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
IMPORT_AGAIN = "write the file again with `costopt carbon import`"


def write_carbon(history: CarbonHistory, path: Path) -> None:
    """Write so that a reader sees the old file or the new one. Raises SignalError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    hours = [history.starts_at + index * HOUR for index in range(history.hours)]
    schema = pa.schema(
        [
            pa.field(TIME, pa.timestamp("us", "UTC"), nullable=False),
            *(pa.field(zone, pa.float64()) for zone in history.zones),
        ],
        metadata={"carbon_signal": history.carbon_signal.value, "source": history.source},
    )
    table = pa.table({TIME: hours, **history.zones}, schema=schema)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        pq.write_table(table, beside, write_page_checksum=True)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise SignalError(
            f"carbon file {path} cannot be written: {error}",
            hint="check the folder and its space",
            code="unwritable",
        ) from error


def read_carbon(path: Path) -> CarbonHistory:
    """Read what ``write_carbon`` wrote. Raises SignalError that names the file and the column."""
    table = _read_table(path)
    metadata = {
        key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()
    }
    try:
        carbon_signal = CarbonSignal(metadata.get("carbon_signal", ""))
    except ValueError as error:
        raise SignalError(
            f"carbon file {path} does not say whether it is average or marginal", hint=IMPORT_AGAIN
        ) from error
    hours = [EPOCH + timedelta(microseconds=micros) for micros in _micros(path, table)]
    if not hours or len(table.column_names) < 2:
        raise SignalError(f"carbon file {path} holds no hour of any zone", hint=IMPORT_AGAIN)
    if hours[0] != hours[0].replace(minute=0, second=0, microsecond=0) or any(
        b - a != HOUR for a, b in pairwise(hours)
    ):
        raise SignalError(f"carbon file {path}: its rows are not hour by hour", hint=IMPORT_AGAIN)
    return CarbonHistory(
        starts_at=hours[0],
        zones={zone: _zone(path, table, zone) for zone in table.column_names if zone != TIME},
        carbon_signal=carbon_signal,
        source=metadata.get("source") or f"file {path.name}",
    )


def _read_table(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.exists() and not path.is_file():
        raise SignalError(f"carbon file {path} is not a regular file", hint="check the path")
    try:
        return pq.ParquetFile(path, page_checksum_verification=True).read()
    except FileNotFoundError as error:
        raise SignalError(
            f"carbon file {path} does not exist", hint="check the path", code="missing"
        ) from error
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:120]
        raise SignalError(
            f"carbon file {path} is truncated or no parquet file: {reason}",
            hint=IMPORT_AGAIN,
            code="not_parquet",
        ) from error


def _micros(path: Path, table: Any) -> Sequence[int]:
    import pyarrow as pa

    kind = table.schema.field(TIME).type if TIME in table.column_names else None
    if kind is None or not pa.types.is_timestamp(kind) or kind.tz is None:
        raise SignalError(
            f"carbon file {path} has no column {TIME} of times with a zone",
            hint=IMPORT_AGAIN,
            code="missing_column",
        )
    column = table.column(TIME).cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64())
    micros: list[int] = column.drop_null().to_pylist()
    return micros


def _zone(path: Path, table: Any, zone: str) -> tuple[float | None, ...]:
    import pyarrow as pa

    kind = table.schema.field(zone).type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        raise SignalError(f"carbon file {path}, column {zone}: holds {kind}", hint=IMPORT_AGAIN)
    values = table.column(zone).to_pylist()
    for value in values:
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise SignalError(
                f"carbon file {path}, column {zone}: {value} g/kWh is impossible", hint=IMPORT_AGAIN
            )
    return tuple(None if value is None else float(value) for value in values)
