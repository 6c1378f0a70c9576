"""The blocks of a web page: figures, tables, charts and text, in the order shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import quote

from costopt.render.svg import ResponsiveChart
from costopt.render.table import Cell, Column, Table


@dataclass(frozen=True, slots=True)
class TableBlock:
    """A table; the first cell of a row names it. ``left_out`` counts rows that are not shown."""

    kind: ClassVar[str] = "grid"
    id: str
    table: Table
    lead: str = ""
    empty: str = "Nothing."
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure in large type. ``basis`` says where it comes from, "" where that is plain."""

    name: str
    value: str
    basis: str
    note: str


@dataclass(frozen=True, slots=True)
class Tiles:
    """Headline figures side by side."""

    kind: ClassVar[str] = "tiles"
    tiles: tuple[Metric, ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing under its title."""

    kind: ClassVar[str] = "plot"
    id: str
    title: str
    lead: str
    drawing: ResponsiveChart


@dataclass(frozen=True, slots=True)
class FactList:
    """Names and what there is to say of each."""

    kind: ClassVar[str] = "facts"
    id: str
    title: str
    facts: tuple[tuple[str, str], ...]
    lead: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """``share`` of a whole, from 0 on; more than 1 fills the bar. ``text`` says it in figures."""

    label: str
    text: str
    share: float
    tone: str = "plain"

    @property
    def percent(self) -> float:
        """Return how much of the bar is filled, 0 to 100."""
        return round(100 * min(1.0, max(0.0, self.share)), 1)


@dataclass(frozen=True, slots=True)
class Bars:
    """What is used of limits, as bars."""

    kind: ClassVar[str] = "bars"
    id: str
    title: str
    bars: tuple[Bar, ...]
    lead: str = ""
    empty: str = "Nothing."


Block = TableBlock | Tiles | Plot | FactList | Bars


@dataclass(frozen=True, slots=True)
class Page:
    """``filter_label`` names a field that narrows the page's rows, "" where there is none.

    ``over`` stands above the title, and leads to ``over_href`` where that is not "".
    """

    title: str
    over: str
    lead: str
    blocks: tuple[Block, ...]
    tone: str = "plain"
    filter_label: str = ""
    over_href: str = ""


def make_columns(*names: str) -> tuple[Column, ...]:
    """Return columns by name; a name that begins with # is of figures, on the right.

    The key is the name in lower case with "_" between its words.
    """
    titles = [(name.removeprefix("#"), name.startswith("#")) for name in names]
    return tuple(
        Column("_".join(re.findall(r"\w+", title.lower())), title, right=right)
        for title, right in titles
    )


def table_block(
    block_id: str,
    title: str,
    columns: tuple[Column, ...],
    cells: Iterable[Sequence[Cell]],
    lead: str = "",
    empty: str = "Nothing.",
    left_out: int = 0,
) -> TableBlock:
    """Return a table of rows of cells, one for each column."""
    keys = [column.key for column in columns]
    rows = [dict(zip(keys, row, strict=True)) for row in cells]
    return TableBlock(block_id, Table("", title, columns, rows), lead, empty, left_out)


def job_cell(name: str) -> Cell:
    """A job's name, leading to its page."""
    return Cell(name, f"/jobs/{quote(name, safe='')}")


def decision_cell(decision_id: str) -> Cell:
    """A decision's id, leading to its page."""
    return Cell(decision_id, f"/decisions/{quote(decision_id, safe='')}")
