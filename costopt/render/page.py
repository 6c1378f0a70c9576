"""The blocks of a web page: figures, tables, charts and text, in the order shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from costopt.render.svg import ResponsiveChart
from costopt.render.table import Column, Table


@dataclass(frozen=True, slots=True)
class TableBlock:
    """A table of at most ``most`` rows; the first cell of each names it."""

    kind: ClassVar[str] = "grid"
    id: str
    title: str
    columns: tuple[Column, ...]
    rows: Sequence[Any]
    lead: str = ""
    empty: str = "None."
    most: int = 300

    @property
    def table(self) -> Table:
        """Return the table of the rows that are shown."""
        return Table("", self.title, self.columns, self.rows[: self.most])

    @property
    def left_out(self) -> int:
        """Return how many rows are not shown."""
        return max(0, len(self.rows) - self.most)


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
