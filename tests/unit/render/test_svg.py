"""Drawings as data, and what is drawn of them."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from costopt.render.drawing import (
    Area,
    Axis,
    Drawing,
    Line,
    Mark,
    Rectangle,
    Symbol,
    Text,
    VerticalLine,
    make_drawing,
    padded_axis,
    round_values,
    value_axis,
)
from costopt.render.svg import draw_chart, draw_svg

HOSTILE = '<script>&"'
X, Y = Axis(0.0, 10.0, ((0.0, "0"), (10.0, "10"))), value_axis(100.0, "{:g} %".format, 4)
TAG = "{http://www.w3.org/2000/svg}"


def drawn(*marks: Mark, x: Axis = X, y: Axis = Y) -> ET.Element:
    return ET.fromstring(draw_svg(make_drawing(False, 300, x, y, marks)))


def without_marks() -> Drawing:
    return make_drawing(False, 300, X, Y, ())


@pytest.mark.parametrize(
    ("low", "high", "most", "values"),
    [
        (0.0, 1.0, 5, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.0, 4.5, 5, [0.0, 1.0, 2.0, 3.0, 4.0]),
        (0.0, 12.0, 5, [0.0, 2.5, 5.0, 7.5, 10.0]),
        (89.0, 98.5, 6, [90.0, 92.0, 94.0, 96.0, 98.0]),
        (0.0, 1e-9, 2, [0.0, 5e-10, 1e-9]),
    ],
)
def test_ticks_are_at_round_values(low: float, high: float, most: int, values: list[float]) -> None:
    assert list(round_values(low, high, most)) == pytest.approx(values)


@pytest.mark.parametrize("values", [[5.0], [0.0, 0.0], [-3.0, -3.0], [1.0, 2.0]])
def test_values_on_a_padded_axis_are_not_on_its_ends(values: list[float]) -> None:
    axis = padded_axis(values, str, 5, 0.1)
    assert axis.low < min(values)
    assert axis.high > max(values)


def test_a_point_is_placed_by_both_axes_and_margins() -> None:
    drawing = without_marks()
    assert drawing.place((0.0, 0.0)) == (56.0, 260.0)
    assert drawing.place((10.0, 100.0)) == (946.0, 22.0)
    assert replace(drawing, y=Axis(3.0, 0.0)).place((0.0, 0.0)) == (56.0, 22.0)
    logarithmic = replace(drawing, x=Axis(1.0, 100.0, is_log=True))
    assert logarithmic.place((10.0, 0.0))[0] == pytest.approx((56.0 + 946.0) / 2)


def test_words_and_titles_are_escaped() -> None:
    line = Line(((0.0, 1.0), (1.0, 2.0)), "done", title=HOSTILE)
    dot = Symbol("dot", (1.0, 1.0), "note", 6, title=HOSTILE)
    root = drawn(Text(HOSTILE, (1.0, 1.0), "ink"), line, dot)
    assert [each.text for each in root.iter(f"{TAG}title")] == [HOSTILE, HOSTILE]
    assert HOSTILE in [each.text for each in root.iter(f"{TAG}text")]
    assert not list(root.iter(f"{TAG}script"))


def test_what_lies_beyond_the_axis_is_not_drawn() -> None:
    bare = len(list(drawn().iter()))
    beyond = (
        Rectangle((11.0, 0.0), (12.0, 50.0), "pool1"),
        Rectangle((-2.0, 0.0), (-1.0, 50.0), "pool1"),
        Line(((11.0, 0.0), (11.0, 9.0)), "bad"),
        VerticalLine(-1.0, "bad"),
        Area((), "saved", 0.5),
    )
    assert len(list(drawn(*beyond).iter())) == bare
    (bar,) = drawn(Rectangle((-5.0, 0.0), (15.0, 50.0), "pool1")).iter(f"{TAG}rect")
    assert (bar.get("x"), bar.get("width")) == ("56", "890")


def test_drawings_have_no_ids_and_are_the_same_each_time() -> None:
    marks = (Symbol("ring", (1.0, 1.0), "note", 9), Symbol("diamond", (2.0, 2.0), "ink", 9))
    chart = draw_chart(lambda narrow: make_drawing(narrow, 200, X, Y, marks), "two marks", ())
    again = draw_chart(lambda narrow: make_drawing(narrow, 200, X, Y, marks), "two marks", ())
    assert chart == again
    assert 'id="' not in chart.wide + chart.narrow
    assert 'viewBox="0 0 360 200"' in chart.narrow
