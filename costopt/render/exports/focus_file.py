"""FOCUS rows as a CSV or Parquet file, with its metadata beside it."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import IO, Any

from costopt import __version__
from costopt.domain.errors import LedgerError
from costopt.render.exports.focus import FocusRow
from costopt.render.exports.focus_columns import (
    COST_PRECISION,
    COST_SCALE,
    FACTOR_PRECISION,
    FACTOR_SCALE,
    FocusColumn,
    FocusType,
    FocusVersion,
    focus_columns,
)
from costopt.store.atomic_file import (
    PIECE_BYTES,
    write_atomic,
    write_chunks_atomic,
    write_error_hint,
)

ROWS_AT_ONCE = 20_000
NOTICE = (
    "Estimates by costopt from what its providers confirmed as running, not an invoice: do not add"
    " them to the provider's own export of the same account."
)
_PRECISION = {
    FocusType.COST: (COST_PRECISION, COST_SCALE),
    FocusType.FACTOR: (FACTOR_PRECISION, FACTOR_SCALE),
}


class FocusFormat(StrEnum):
    """The formats of data files."""

    CSV = "csv"
    PARQUET = "parquet"


@dataclass(slots=True)
class FocusTotals:
    """What a file holds: rows, the sum of ``BilledCost``, and rows without a list price."""

    rows: int = 0
    billed_usd: Decimal = Decimal(0)
    unlisted_rows: int = 0


def write_focus(
    rows: Iterable[FocusRow], path: Path, file_format: FocusFormat, version: FocusVersion
) -> FocusTotals:
    """Write the rows and their metadata, so that a reader sees old files or new ones.

    Raises LedgerError where a file cannot be written.
    """
    totals = FocusTotals()
    columns = focus_columns(version)
    write = _write_csv if file_format is FocusFormat.CSV else _write_parquet
    try:
        with tempfile.TemporaryFile() as file:
            write(_counted(rows, totals), columns, file)
            file.seek(0)
            write_chunks_atomic(path, iter(lambda: file.read(PIECE_BYTES), b""))
        write_atomic(metadata_path(path), _metadata(columns, version, path.name))
    except OSError as error:
        raise LedgerError(
            f"{path} cannot be written: {error.strerror or error}",
            hint=write_error_hint(error),
            code="unwritable",
            subject=str(path),
        ) from error
    return totals


def metadata_path(path: Path) -> Path:
    """Return where the metadata of a data file are."""
    return path.with_name(f"{path.stem}.metadata.json")


def _counted(rows: Iterable[FocusRow], totals: FocusTotals) -> Iterator[FocusRow]:
    for row in rows:
        billed = row["BilledCost"]
        assert isinstance(billed, Decimal)
        totals.rows += 1
        totals.billed_usd += billed
        totals.unlisted_rows += row["ListUnitPrice"] is None
        yield row


def _write_csv(rows: Iterator[FocusRow], columns: tuple[FocusColumn, ...], file: IO[bytes]) -> None:
    text = io.TextIOWrapper(file, "utf-8", newline="")
    writer = csv.writer(text)
    writer.writerow(column.name for column in columns)
    writer.writerows([_cell(row.get(column.name)) for column in columns] for row in rows)
    text.flush()
    text.detach()


def _cell(value: str | datetime | Decimal | None) -> str:
    """Return the text of a cell; null is empty. Numbers have a decimal point, as readers that
    guess types take a column of whole numbers for integers."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, Decimal):
        whole, _, part = f"{value:f}".partition(".")
        return f"{whole}.{part.rstrip('0') or '0'}"
    return value


def _write_parquet(
    rows: Iterator[FocusRow], columns: tuple[FocusColumn, ...], file: IO[bytes]
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(pa.field(column.name, _arrow_type(column.type)) for column in columns)
    with pq.ParquetWriter(file, schema) as writer:
        while piece := list(islice(rows, ROWS_AT_ONCE)):
            cells = {field.name: [row.get(field.name) for row in piece] for field in schema}
            writer.write_table(pa.table(cells, schema=schema))


def _arrow_type(kind: FocusType) -> Any:
    import pyarrow as pa

    if kind is FocusType.DATETIME:
        return pa.timestamp("us", "UTC")
    return pa.decimal128(*_PRECISION[kind]) if kind in _PRECISION else pa.string()


def _metadata(columns: tuple[FocusColumn, ...], version: FocusVersion, file_name: str) -> bytes:
    """Return the metadata objects of the specification: data generator, schema and columns."""
    document = {
        "DataGenerator": "costopt",
        "DataGeneratorVersion": __version__,
        "FocusVersion": version.value,
        "CreationDate": _cell(datetime.now(UTC)),
        "DataFile": file_name,
        "x_Notice": NOTICE,
        "ColumnDefinition": [_definition(column) for column in columns],
    }
    return (json.dumps(document, indent=2) + "\n").encode()


def _definition(column: FocusColumn) -> dict[str, object]:
    definition: dict[str, object] = {"ColumnName": column.name}
    if column.type in _PRECISION:
        precision, scale = _PRECISION[column.type]
        return definition | {
            "DataType": "DECIMAL",
            "NumericPrecision": precision,
            "NumberScale": scale,
        }
    definition["DataType"] = column.type.value
    if column.type is FocusType.STRING:
        definition["StringEncoding"] = "UTF-8"
    return definition
