"""One table, for people and for programs: its columns and rows. ``writers`` writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    """Text in a table. ``tone`` is good, bad, note or plain; ``href`` is a path of ours."""

    text: str
    href: str = ""
    tone: str = "plain"


@dataclass(frozen=True, slots=True)
class Column:
    """``key`` names the value for programs, ``title`` for people; ``shown`` writes it for people.

    ``unknown`` stands in the cell of a value that is None, which ``shown`` never gets; a value that
    is a Cell is shown as it is. ``detail`` columns are for json and csv only, ``for_people`` ones
    for all but these. In text, a sentence longer than ``fold_at`` goes on in the next line; no name
    is ever broken. Columns of ``rank`` 0 are always in it, of the others as many as fit, the lowest
    rank first; ``--wide`` shows all. The values of an ``interval`` column are Estimates: programs
    get them as KEY, KEY_low and KEY_high.
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

    def cell(self, row: Row) -> Cell:
        """Return what people see of a row."""
        value = row.get(self.key)
        if isinstance(value, Cell):
            return value
        return Cell(self.unknown if value is None else self.shown(value))

    def text(self, row: Row) -> str:
        """Return the text of the row's cell."""
        return self.cell(row).text

    def fields(self, row: Row) -> Row:
        """Return what programs get of a row, by name."""
        if self.for_people:
            return {}
        value = row.get(self.key)
        return interval_fields(self.key, value) if self.interval else {self.key: value}


@dataclass(frozen=True, slots=True)
class Table:
    """``schema`` is the name and version of the form, such as costopt.catalog/1.

    It is "" where no program reads the table. ``rows`` hold raw values by column key. ``facts`` are
    values of the whole table, json only; ``lead`` is the answer in a sentence, above the table of a
    page; ``notes`` are sentences under the table for people, and ``more`` tables after those. Rows
    whose value of ``marks`` is true stand out.
    """

    schema: str
    title: str
    columns: tuple[Column, ...]
    rows: Sequence[Row]
    facts: Row = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    marks: str | None = None
    more: tuple[Table, ...] = ()
    lead: str = ""

    @property
    def shown_columns(self) -> tuple[Column, ...]:
        """The columns for people."""
        return tuple(column for column in self.columns if not column.detail)

    @property
    def filled_columns(self) -> tuple[Column, ...]:
        """The columns for people that hold any text; all of them where there is no row."""
        columns = self.shown_columns
        return tuple(c for c in columns if not self.rows or any(map(c.text, self.rows)))

    def is_marked(self, row: Row) -> bool:
        """Return whether the row stands out."""
        return self.marks is not None and bool(row.get(self.marks))

    def fields(self, row: Row) -> Row:
        """Return what programs get of a row, by name."""
        return {name: v for column in self.columns for name, v in column.fields(row).items()}


class Tabular:
    """What is shown as a table: by Python's prompt as text, by a notebook as HTML."""

    __slots__ = ()

    def table(self) -> Table:
        """Return the table."""
        raise NotImplementedError

    def __repr__(self) -> str:
        from costopt.render.text_table import to_text

        return to_text(self.table(), more_by="to_frame()").rstrip()

    def _repr_html_(self) -> str:
        from costopt.render.notebook import table_fragment

        return table_fragment(self.table(), getattr(self, "notes", ()))


def interval_fields(name: str, estimate: object) -> Row:
    """Return an estimate's value and the ends of its interval by name; of None three times None."""
    known = estimate if isinstance(estimate, Estimate) else None
    ends = (known.value, known.low, known.high) if known else (None, None, None)
    return dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))
