"""One table, for people and for programs: its columns and rows. ``writers`` writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from costopt.domain.estimate import Estimate
from costopt.formatting import UNKNOWN_CELL, plain_text

Row = Mapping[str, object]


class OutputFormat(StrEnum):
    """How a table is written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MD = "md"
    HTML = "html"


@dataclass(frozen=True, slots=True)
class Cell:
    """What people see of a value. ``tone`` is good, bad, note or plain; ``href`` a path of ours."""

    text: str
    href: str = ""
    tone: str = "plain"


@dataclass(frozen=True, slots=True)
class Column:
    """``key`` names the value for programs, ``title`` for people; ``shown`` writes it for people.

    ``value`` is where a row holds the value, a path such as summary.usd, or a function of the row;
    "" where it is ``key``. A row is a mapping, or an object with attributes. ``unknown`` stands in
    the cell of a value that is None, which ``shown`` never gets. On pages a cell has a ``tone``,
    which may be a function of the row, and ``link`` makes a path of the value. ``detail`` columns
    are for json and csv only, ``for_people`` ones for all but these. In text, a sentence longer
    than ``fold_at`` goes on in the next line; no name is ever broken. Columns of ``rank`` 0 are
    always in it, of the others as many as fit, the lowest rank first; ``--wide`` shows all. The
    values of an ``interval`` column are Estimates: programs get them as KEY, KEY_low and KEY_high.
    """

    key: str
    title: str
    shown: Callable[[Any], str] = plain_text
    right: bool = False
    detail: bool = False
    for_people: bool = False
    fold_at: int | None = None
    rank: int = 0
    interval: bool = False
    unknown: str = UNKNOWN_CELL
    value: str | Callable[[Any], object] = ""
    tone: str | Callable[[Any], str] = "plain"
    link: Callable[[Any], str] | None = None

    def value_in(self, row: Any) -> Any:
        """Return the row's value; None where a mapping does not hold it."""
        return self.value(row) if callable(self.value) else value_at(row, self.value or self.key)

    def cell(self, row: Any) -> Cell:
        """Return what people see of a row."""
        value = self.value_in(row)
        return Cell(
            self.unknown if value is None else self.shown(value),
            self.link(value) if self.link and value is not None else "",
            self.tone(row) if callable(self.tone) else self.tone,
        )

    def text(self, row: Any) -> str:
        """Return the text of the row's cell."""
        return self.cell(row).text

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which programs get the value."""
        if self.for_people:
            return ()
        return tuple(interval_fields(self.key, None)) if self.interval else (self.key,)

    def fields(self, row: Any) -> Row:
        """Return what programs get of a row, by name."""
        if self.for_people:
            return {}
        value = self.value_in(row)
        return interval_fields(self.key, value) if self.interval else {self.key: value}


def value_at(row: Any, path: str) -> Any:
    """Return what a row holds at a path; None where a mapping on it has no such key, or nothing."""
    for name in path.split("."):
        if row is None:
            return None
        row = row.get(name) if isinstance(row, Mapping) else getattr(row, name)
    return row


def pick(columns: Iterable[Column], keys: str) -> tuple[Column, ...]:
    """Return the columns with these keys, which are separated by spaces, in their order."""
    by_key = {column.key: column for column in columns}
    return tuple(by_key[key] for key in keys.split())


@dataclass(frozen=True, slots=True)
class Table:
    """``schema`` is the name and version of the form, such as costopt.catalog/1.

    It is "" where no program reads the table. ``rows`` hold raw values. ``facts`` are
    values of the whole table, json only; ``lead`` is the answer, above the table; ``notes`` are
    sentences under the table for people, ``details`` those on how its figures came about, which
    text shows with ``--wide`` alone, and ``more`` tables after those. Rows whose value of ``marks``
    is true stand out.
    """

    schema: str
    title: str
    columns: tuple[Column, ...]
    rows: Sequence[Any]
    facts: Row = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    marks: str | None = None
    more: tuple[Table, ...] = ()
    lead: str = ""
    details: tuple[str, ...] = ()

    @property
    def shown_columns(self) -> tuple[Column, ...]:
        """The columns for people."""
        return tuple(column for column in self.columns if not column.detail)

    @property
    def filled_columns(self) -> tuple[Column, ...]:
        """The columns for people that hold any text; all of them where there is no row."""
        columns = self.shown_columns
        return tuple(c for c in columns if not self.rows or any(map(c.text, self.rows)))

    def is_marked(self, row: Any) -> bool:
        """Return whether the row stands out."""
        return self.marks is not None and bool(value_at(row, self.marks))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of what programs get of a row."""
        return tuple(name for column in self.columns for name in column.names)

    def fields(self, row: Any) -> Row:
        """Return what programs get of a row, by name."""
        return {name: v for column in self.columns for name, v in column.fields(row).items()}


def interval_fields(name: str, estimate: object) -> Row:
    """Return an estimate's value and the ends of its interval by name; of None three times None."""
    known = estimate if isinstance(estimate, Estimate) else None
    ends = (known.value, known.low, known.high) if known else (None, None, None)
    return dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))


def figures(columns: Iterable[Column], row: Any) -> tuple[tuple[str, str], ...]:
    """Return title and text of a row's columns, of those that hold any text."""
    texts = ((column.title, column.text(row)) for column in columns)
    return tuple((title, text) for title, text in texts if text)


def records(rows: Iterable[Any], names: str) -> list[Row]:
    """Return the values with these names, which are separated by spaces, of each row."""
    return [{name: value_at(row, name) for name in names.split()} for row in rows]
