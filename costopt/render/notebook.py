"""Tables and charts where there is no page around them, as in a notebook."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from costopt.domain.errors import SpecError
from costopt.render.drawing import WIDE_PX
from costopt.render.html import page_css, report_template, write_page
from costopt.render.svg import LegendEntry, ResponsiveChart
from costopt.render.table import Table

_STYLE = (
    "<style>.costopt td, .costopt th { text-align: left; vertical-align: top } "
    ".costopt .number { text-align: right } .costopt .number, .costopt .whole "
    "{ white-space: nowrap } "
    ".costopt .marked { font-weight: 600 } .costopt caption { text-align: left }</style>"
)
TITLE_PX, LINE_PX, MARGIN_PX, SYMBOL_PX, CHARACTER_PX = 40, 24, 14, 34, 7.4


def table_fragment(table: Table, notes: Sequence[str] = ()) -> str:
    """Return the table with all columns for people as a part of a page, with lead and notes, and
    these notes below.

    Everything in it is escaped.
    """
    shown = report_template("fragment.html.j2").render(
        table=table, notes=(*table.notes, *table.details, *notes), style=_STYLE
    )
    return shown + "".join(map(table_fragment, table.more))


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, as an SVG drawing that needs no page around it; a notebook shows it.

    ``alt`` says in words what it shows.
    """

    title: str
    alt: str
    svg: str = field(repr=False)

    def save(self, path: Path | str) -> Path:
        """Write it to a file that ends in .svg; return its path.

        Raise SpecError for another ending, StoreError if the file cannot be written.
        """
        target = Path(path)
        if target.suffix.lower() != ".svg":
            raise SpecError(
                f"{target}: charts are SVG drawings",
                hint=f"name the file {target.with_suffix('.svg').name}",
                code="bad_argument",
                subject="path",
            )
        return write_page(target, self.svg)

    def _repr_svg_(self) -> str:
        return self.svg


def to_chart(title: str, drawing: ResponsiveChart) -> Chart:
    """Return a drawing of a page under its title, with its legend and in the colours of light
    pages."""
    legend = list(_placed(drawing.legend))
    top = max([TITLE_PX, *(entry.y + LINE_PX for entry in legend)])
    plot_px = float(_viewbox(drawing.wide)[3])
    plot = drawing.wide.replace(
        '<svg class="plot" ', f'<svg width="{WIDE_PX}" height="{plot_px:g}" ', 1
    )
    svg = report_template("chart.svg.j2").render(
        title=title,
        alt=drawing.alt,
        width=WIDE_PX,
        height=f"{top + plot_px + MARGIN_PX:g}",
        top=top,
        legend=legend,
        plot=plot,
    )
    colours = dict(re.findall(r"--(\w+): (#\w+);", page_css().partition("@media")[0]))
    coloured = re.sub(r"var\(--(\w+)\)", lambda found: colours[found[1]], svg.strip())
    return Chart(title, drawing.alt, coloured + "\n")


@dataclass(frozen=True, slots=True)
class _PlacedEntry:
    x: float
    y: float
    entry: LegendEntry


def _placed(entries: Sequence[LegendEntry]) -> Iterator[_PlacedEntry]:
    """Yield the entries from left to right, in as many lines as they need."""
    x, y = float(MARGIN_PX), float(TITLE_PX)
    for entry in entries:
        width = SYMBOL_PX + CHARACTER_PX * len(entry.text) + 20
        if x > MARGIN_PX and x + width > WIDE_PX:
            x, y = float(MARGIN_PX), y + LINE_PX
        yield _PlacedEntry(round(x, 1), y, entry)
        x += width


def _viewbox(svg: str) -> list[str]:
    found = re.search(r'viewBox="([^"]+)"', svg)
    assert found is not None
    return found[1].split()
