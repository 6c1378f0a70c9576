"""Readers of CSV files: the tables beside this package, and tables that users import.

An empty cell is unknown.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from datetime import UTC, datetime
from pathlib import Path

from costopt.domain.errors import CostoptError

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


def read_user_csv(
    path: Path, error: type[CostoptError], delimiter: str = ","
) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a CSV file of a user (UTF-8, plain or .gz).

    Every row has as many cells as the header, which is empty where the file is. Raises ``error``
    that names the file, and the line of a row of another length.
    """
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as cause:
        raise error(
            f"{path} cannot be read: {cause}", hint="download it again", code="unreadable"
        ) from cause
    header, *rows = list(csv.reader(io.StringIO(text), delimiter=delimiter)) or [[]]
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise error(f"{path}, line {number}: {len(row)} cells, the header {len(header)}")
    return header, rows
