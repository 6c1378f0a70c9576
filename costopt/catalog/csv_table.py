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


GZIP = b"\x1f\x8b"
OTHER_FORMS = {
    b"PK\x03\x04": "a ZIP archive",
    b"BZh": "compressed by bzip2",
    b"\xfd7zXZ\x00": "compressed by xz",
    b"\x28\xb5\x2f\xfd": "compressed by Zstandard",
    b"PAR1": "a Parquet file",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
}
"""By their first bytes."""


def read_user_text(path: Path, error: type[CostoptError]) -> str:
    """Return the text of a file of a user: UTF-8, plain or gzip by its first bytes.

    Raises ``error`` that names the file, and its form where that is another one.
    """
    try:
        raw = path.read_bytes()
        other = next((form for magic, form in OTHER_FORMS.items() if raw.startswith(magic)), None)
        if other is not None:
            raise error(
                f"{path} is {other}, not text",
                hint="unpack or convert it first; only gzip is unpacked here",
                code="unreadable",
            )
        return (gzip.decompress(raw) if raw.startswith(GZIP) else raw).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error) as cause:
        raise error(
            f"{path} cannot be read: {cause}", hint="download it again", code="unreadable"
        ) from cause
    except UnicodeDecodeError as cause:
        raise error(
            f"{path} is not UTF-8 text: {cause}",
            hint="see whether it is of the form that was named",
            code="unreadable",
        ) from cause


def read_user_csv(
    path: Path, error: type[CostoptError], delimiter: str = ",", free_column: str | None = None
) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a CSV file of a user (UTF-8, plain or gzip).

    With ``free_column`` no cell is quoted, and that column may contain the delimiter.
    Every row has as many cells as the header, which is empty where the file is. Raises ``error``
    that names the file, and the line of a row of another length.
    """
    lines = io.StringIO(read_user_text(path, error))
    if free_column is None:
        reader = csv.reader(lines, delimiter=delimiter)
    else:
        reader = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    try:
        header, *rows = [row for row in reader if row] or [[]]
    except csv.Error as cause:
        raise error(
            f"{path}, line {reader.line_num}: {cause}",
            hint="see whether the file is CSV",
            code="unreadable",
        ) from cause
    if len(header) == 1 and ";" in header[0]:
        raise error(
            f"{path}, line 1: its cells are separated by semicolons",
            hint="save it with commas between cells, and with decimal points",
        )
    if free_column is not None and free_column in header:
        at = header.index(free_column)
        for row in rows:
            surplus = len(row) - len(header)
            if surplus > 0:
                row[at : at + surplus + 1] = [delimiter.join(row[at : at + surplus + 1])]
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise error(f"{path}, line {number}: {len(row)} cells, the header {len(header)}")
    return header, rows
