"""Names stay whole in the cells of a page, and numbers of dots stay apart."""

from __future__ import annotations

import html
import re
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costopt.render.html import MAX_UNBROKEN, cell_html
from costopt.render.reports.what_if import Box, around, label_places

POOL = "gcp/europe-north1*/a3-highgpu-1g/spot"


@given(st.text())
def test_a_cell_says_the_text_and_nothing_else(text: str) -> None:
    shown = cell_html(text)
    tags = set(re.findall(r"<[^>]*>", shown))
    assert tags <= {
        "<br>", "</span>", '<span class="whole">', '<span class="whole path">',
        '<span class="long">',
    }  # fmt: skip
    plain = re.sub(r"<[^>]*>", "", shown.replace("<br>", "\n"))
    assert html.unescape(plain) == text


@pytest.mark.parametrize(
    "text", [POOL, f"{POOL},\n{POOL}", f"on {POOL} since", "2026-11-22 19:28Z"]
)
def test_names_are_kept_whole(text: str) -> None:
    whole = re.findall(r'<span class="whole[^"]*">([^<]*)</span>', cell_html(text))
    assert whole == [html.escape(word) for word in text.split() if re.search("[-/]", word)]


def test_what_is_longer_than_a_name_may_break() -> None:
    assert "whole" not in cell_html("x-" * MAX_UNBROKEN)


coordinates = st.tuples(st.floats(0, 300), st.floats(0, 200))


@given(st.lists(coordinates, min_size=1, max_size=40))
def test_no_number_lies_on_another_or_on_a_dot(dots: list[tuple[float, float]]) -> None:
    within = Box(0, 0, 300, 200)
    sizes = [(18.0, 14.0)] * len(dots)
    places = label_places(dots, sizes, within, 9.0)
    labels = [around(place, *size) for place, size in zip(places, sizes, strict=True)]
    assert all(within.holds(label) for label in labels)
    assert not any(a.overlaps(b) for a, b in combinations(labels, 2))
    marks = [around(dot, 9.0, 9.0) for dot in dots]
    assert not any(label.overlaps(mark) for label in labels for mark in marks)


def test_a_number_is_close_to_its_dot_where_there_is_room() -> None:
    (place,) = label_places([(100.0, 100.0)], [(10.0, 14.0)], Box(0, 0, 300, 200), 12.0)
    assert place == pytest.approx((100.0, 114.0))


def test_without_any_room_the_number_lies_above_its_dot() -> None:
    places = label_places([(5.0, 5.0)] * 2, [(50.0, 14.0)] * 2, Box(0, 0, 20, 20), 9.0)
    assert places == [(5.0, 19.0)] * 2
