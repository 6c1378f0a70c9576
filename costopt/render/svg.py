"""A matplotlib figure as inline SVG whose colours are the page's.

Figures are drawn with stand-in colours that become CSS variables, so that one drawing serves the
light and the dark page; its ids are made unique, since several drawings share a page. The same
figure gives the same bytes: no date, no version, a fixed salt.
"""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (
    "ink",
    "muted",
    "grid",
    "surface",
    "spend",
    "energy",
    "baseline",
    "done",
    "saved",
    "bad",
    "note",
    "pool1",
    "pool2",
    "pool3",
    "pool4",
    "pool5",
    "pool6",
    "firm",
    "finish1",
    "finish2",
    "finish3",
    "finish4",
    "finish5",
)
"""Names of the page's CSS colour variables."""

FINISH_COLOURS = ("finish1", "finish2", "finish3", "finish4", "finish5")
"""From the earliest to the latest, each stronger than the one before."""

POOL_COLOURS = ("pool1", "pool2", "pool3", "pool4", "pool5", "pool6")

WIDE_PX = 960
NARROW_PX = 360


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A symbol in a colour, and its meaning.

    Symbols are line, dash, bar, tint, cross, tick, ring, diamond, dot and faint, a small pale dot.
    """

    symbol: str
    colour: str
    text: str


@dataclass(frozen=True, slots=True)
class ResponsiveChart:
    """The same plot for a wide page and a phone, with its text alternative."""

    wide: str
    narrow: str
    alt: str
    legend: tuple[LegendEntry, ...]


@dataclass(frozen=True, slots=True)
class Canvas:
    """Where one variant is drawn. ``name`` tells apart the ids of drawings on one page."""

    name: str
    width_px: int

    @property
    def narrow(self) -> bool:
        """Whether it is for a phone."""
        return self.width_px == NARROW_PX

    def axes(self, height_px: int, *, left_px: int = 56) -> tuple[Figure, Axes]:
        """Bare axes whose margins are the same in every plot, so that their times line up."""
        from matplotlib.figure import Figure

        left_px = 48 if self.narrow and left_px else left_px
        right_px, top_px, bottom_px = 14, 22, 40
        # 72 dots per inch make one point one CSS pixel
        figure = Figure(figsize=(self.width_px / 72, height_px / 72), dpi=72)
        axes = figure.add_axes(
            (
                left_px / self.width_px,
                bottom_px / height_px,
                (self.width_px - left_px - right_px) / self.width_px,
                (height_px - bottom_px - top_px) / height_px,
            )
        )
        _style(axes)
        return figure, axes

    def svg(self, figure: Figure) -> str:
        """The figure as an ``<svg>`` element without width and height."""
        from matplotlib import rc_context

        buffer = io.StringIO()
        with (
            rc_context({"svg.hashsalt": self.name, "svg.fonttype": "none"}),
            warnings.catch_warnings(),
        ):
            # a glyph that the measuring font lacks is drawn by the browser's own
            warnings.simplefilter("ignore", UserWarning)
            figure.savefig(
                buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
            )
        return _inline(buffer.getvalue(), self.name)


def make_canvases(name: str) -> tuple[Canvas, Canvas]:
    """The wide and the narrow canvas of one plot."""
    return Canvas(f"{name}-w", WIDE_PX), Canvas(f"{name}-n", NARROW_PX)


def with_titles(svg: str, canvas: Canvas, titles: Mapping[str, str]) -> str:
    """Return the plot with a text that shows under the pointer for each group of this id."""
    for group, text in titles.items():
        tag = f'<g id="{canvas.name}-{group}">'
        svg = svg.replace(tag, f"{tag}<title>{html.escape(text, quote=False)}</title>", 1)
    return svg


def css_color(name: str) -> str:
    """The stand-in for one of COLOURS, for matplotlib."""
    return f"#10{COLOURS.index(name):02x}01"


def _style(axes: Axes) -> None:
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(css_color("muted"))
    axes.tick_params(colors=css_color("muted"), labelsize=12, length=0, pad=6)
    axes.tick_params(axis="x", length=4)
    axes.grid(axis="y", color=css_color("grid"), linewidth=1)
    axes.set_axisbelow(True)
    axes.patch.set_visible(False)
    axes.figure.patch.set_visible(False)


def _inline(document: str, name: str) -> str:
    svg = document[document.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<style type="text/css">.*?</style>', "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg [^>]*?) ?width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg [^>]*?) ?height="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace("<svg ", '<svg class="plot" ', 1)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = svg.replace("url(#", f"url(#{name}-").replace('href="#', f'href="#{name}-')
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg)
    svg = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", svg)
    for colour in COLOURS:
        svg = svg.replace(css_color(colour), f"var(--{colour})")
    return svg.strip()
