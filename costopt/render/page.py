"""The blocks of a web page: figures, tables, charts and text, in the order shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import quote

from costopt.render.run_tables import Metric
from costopt.render.svg import ResponsiveChart


@dataclass(frozen=True, slots=True)
class Cell:
    """Text in a table. ``tone`` is good, bad, note or plain; ``href`` is a path of ours."""

    text: str
    href: str = ""
    tone: str = "plain"


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column; figures stand to the right."""

    name: str
    figures: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first cell of a row names it. ``left_out`` counts rows that are not shown."""

    kind: ClassVar[str] = "grid"
    id: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    lead: str = ""
    empty: str = "Nothing."
    left_out: int = 0


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


Block = Table | Tiles | Plot | FactList


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
    """Columns by name; a name that begins with # is of figures."""
    return tuple(Column(name.removeprefix("#"), name.startswith("#")) for name in names)


def job_cell(name: str) -> Cell:
    """A job's name, leading to its page."""
    return Cell(name, f"/jobs/{quote(name, safe='')}")


def decision_cell(decision_id: str) -> Cell:
    """A decision's id, leading to its page."""
    return Cell(decision_id, f"/decisions/{quote(decision_id, safe='')}")
