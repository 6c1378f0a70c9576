"""The page of a what-if: every plan is drawn, tipped and listed."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from costopt.domain.estimate import Estimate
from costopt.render.drawing import FINISH_COLOURS
from costopt.render.reports.what_if import frontier_plot, what_if_page
from costopt.render.table import Column, Table
from costopt.views.frontier import FrontierRow, frontier_table
from tests.unit.render.test_pages import HOSTILE, Page

NOW = datetime(2026, 3, 2, 8, tzinfo=UTC)


def point(number: int) -> FrontierRow:
    """Dollars go up, energy and finish down and up."""
    takes_s = 3600.0 * (20 + (number * 7) % 24)
    return FrontierRow(
        usd=900 + 12.5 * number**1.4,
        kwh=420 - 9 * number**0.8,
        gco2e=None if number == 3 else 1000.0 * (90 - number),
        takes_s=takes_s,
        finish_p50_at=NOW + timedelta(seconds=takes_s),
        finish_p95_at=NOW + timedelta(seconds=1.2 * takes_s),
        on_time=Estimate.of_share(1940, 2000, "made up"),
        pools=(f"aws/us-east-1{'abc'[number % 3]}/p4d.24xlarge/spot",),
    )


POINTS = tuple(point(number) for number in range(24))
SCENARIOS = Table(
    "",
    "Scenarios",
    (
        Column("star", ""),
        Column("policy", "Policy"),
        Column("usd_mean", "$ expected", right=True),
        Column("pools", "Pools"),
    ),
    (
        {"star": "★", "policy": "cheapest", "usd_mean": 912.0,
         "pools": "aws/us-east-1a/p4d.24xlarge/spot"},
        {"star": "", "policy": HOSTILE, "usd_mean": None, "pools": ""},
    ),
    lead="1 of 2 scenarios end in time.",
)  # fmt: skip


def cells(table: Table) -> list[list[str]]:
    return [[column.text(row) for column in table.shown_columns] for row in table.rows]


def written(points: tuple[FrontierRow, ...] = POINTS) -> str:
    return what_if_page(points, SCENARIOS, policy=HOSTILE, now=NOW)


def test_every_plan_has_a_dot_with_its_figures_and_a_row() -> None:
    text = written()
    tips = re.findall(r"<title>(Plan [^<]*)</title>", text)
    assert len(tips) == 2 * len(POINTS), "in the wide and in the narrow drawing"
    assert tips[3].startswith("Plan 4: $958.19, 398.3 kWh, unknown CO2e, takes 1 d 17 h: aws/")
    assert text.count("<tr><td") == len(POINTS) + len(SCENARIOS.rows)
    page = Page(text)
    assert page.tags["script"] == 0
    assert "alert(1)" in page.text


def test_the_same_points_give_the_same_page() -> None:
    assert written() == written()


def test_colours_tell_the_finish_from_early_to_late() -> None:
    drawing = frontier_plot(POINTS)
    assert tuple(entry.colour for entry in drawing.legend) == FINISH_COLOURS
    assert drawing.legend[0].text.startswith("takes up to 1 d")
    for colour in FINISH_COLOURS:
        assert f"var(--{colour})" in drawing.wide
    early, late = min(POINTS, key=lambda p: p.takes_s), max(POINTS, key=lambda p: p.takes_s)
    ends = frontier_plot((early, late)).wide
    assert ends.index("var(--finish1)") < ends.index("var(--finish5)")
    assert "var(--finish3)" not in ends


def test_the_knee_is_marked_in_chart_and_table() -> None:
    plans = (*POINTS[:4], replace(POINTS[4], knee=True), *POINTS[5:])
    drawing, table = frontier_plot(plans), frontier_table(plans)
    assert drawing.legend[-1].symbol == "diamond"
    assert "<title>Knee: plan 5</title>" in drawing.wide
    assert [n for n, row in enumerate(cells(table), 1) if "◆" in row] == [5]
    assert [row["knee"] for row in map(table.fields, table.rows)].index(True) == 4
    assert table.notes


def test_plans_that_finish_together_share_one_colour() -> None:
    same = tuple(replace(each, takes_s=7200.0) for each in POINTS)
    (entry,) = frontier_plot(same).legend
    assert entry.text == "takes 2 h"


def test_the_lead_says_what_energy_and_time_cost() -> None:
    text = written()
    assert "The cheapest plan comes to $900.00 and 420.0 kWh; the most frugal takes" in text
    assert "; the earliest takes 20 h where the cheapest takes 1 d 3 h, for " in written(
        (replace(POINTS[0], takes_s=27 * 3600.0), replace(POINTS[1], takes_s=20 * 3600.0))
    )
    alone = written(POINTS[:1])
    assert "none takes less energy." in alone
    assert "has no plan to draw a frontier of" in written(())


def test_the_first_sentence_answers_what_was_asked() -> None:
    lead = re.findall(r'<p class="lead">(.*?)</p>', written())[0]
    assert lead == "1 of 2 scenarios end in time."
    text = written()
    assert text.index('id="scenarios"') < text.index('id="frontier"') < text.index('id="plans"')


def test_mixes_of_pools_that_no_policy_chooses_are_faded_and_folded() -> None:
    two = ("aws/us-east-1a/p4d.24xlarge/spot", "aws/us-east-1b/p4d.24xlarge/spot")
    mixed = [replace(each, pools=two) for each in POINTS[:3]]
    mixed[1] = replace(mixed[1], policies=("greenest",))
    text = written((*mixed, *POINTS[3:5]))
    shown, _, folded = text.partition('id="mixes"')
    assert re.findall(r'data-label="Plan">(\d+)<', shown) == ["2", "4", "5"]
    assert re.findall(r'data-label="Plan">(\d+)<', folded) == ["1", "3"]
    assert "2 plans that no policy chooses" in folded
    assert "2 greenest" in text


def test_no_plan_has_no_plot() -> None:
    with pytest.raises(ValueError, match="needs a plan"):
        frontier_plot(())


def test_an_unknown_figure_is_a_dash() -> None:
    assert cells(frontier_table(POINTS))[3][4] == "–"


def test_the_chosen_plan_has_a_ring_and_a_highlighted_row() -> None:
    chosen = (*POINTS[:4], replace(POINTS[4], chosen=True), *POINTS[5:])
    text = written(chosen)
    assert text.count("<title>Chosen: plan 5</title>") == 2
    assert re.findall(r'<tr class="marked"><td[^>]*>(\d+)<', text) == ["5"]
    assert "not among them" not in text
    assert "not among them" in written()


def test_a_plan_of_unknown_energy_has_a_row_and_no_dot() -> None:
    unknown = replace(POINTS[1], kwh=None, gco2e=None)
    text = written((POINTS[0], unknown, POINTS[2]))
    tips = re.findall(r"<title>(Plan \d+)", text)
    assert tips == ["Plan 1", "Plan 3"] * 2
    assert text.count("<tr><td") == 3 + len(SCENARIOS.rows)
    assert cells(frontier_table([unknown]))[0][3:5] == ["–", "–"]
    alone = written((unknown,))
    assert alone.count("<tr><td") == 1 + len(SCENARIOS.rows)
    with pytest.raises(ValueError, match="plan"):
        frontier_plot([unknown])
