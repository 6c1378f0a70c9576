"""What more time buys, drawn."""

from __future__ import annotations

from dataclasses import replace

import pytest

import costopt
from costopt.render.reports.deadline_curve import DONE_BY_THEN, deadline_plot
from costopt.spec import STARTER_JOB
from tests.unit.render.test_what_if import POINTS, SCENARIOS


@pytest.fixture(scope="module")
def market() -> costopt.Market:
    return costopt.read_market("sample")


@pytest.fixture(scope="module")
def job(market: costopt.Market) -> costopt.Job:
    return costopt.load_job(STARTER_JOB, now=market.first_priced_at)


def test_a_line_per_policy_where_deadlines_differ(job: costopt.Job, market: costopt.Market) -> None:
    spans_s = [11 * 3600, 13 * 3600, 24 * 3600]
    compared = costopt.what_if(
        job, ["cheapest", "on-demand"], deadlines=spans_s, market=market, points=0
    )
    plot = deadline_plot(compared.table(), ())
    assert plot is not None
    assert [entry.text for entry in plot.legend] == ["cheapest", "on-demand"]
    assert plot.wide.count("<title>cheapest: $") == 3
    assert 'id="deadline"' in compared.to_html()


def test_with_one_deadline_the_frontier_answers() -> None:
    later = replace(POINTS[0], takes_s=POINTS[0].takes_s + 3600, usd=POINTS[0].usd - 1)
    plot = deadline_plot(SCENARIOS, (later, *POINTS))
    assert plot is not None
    assert [entry.text for entry in plot.legend] == [DONE_BY_THEN]


def test_nothing_is_drawn_of_one_plan() -> None:
    assert deadline_plot(SCENARIOS, POINTS[:1]) is None
    slower = replace(POINTS[0], takes_s=POINTS[0].takes_s + 3600)
    assert deadline_plot(SCENARIOS, (POINTS[0], slower)) is None


def test_the_page_of_a_plan_draws_its_hours(job: costopt.Job, market: costopt.Market) -> None:
    planned = costopt.plan(job, market=market)
    page = planned.to_html()
    assert 'id="hours"' in page
    assert all(f"{each.nodes} × " in page for each in planned.allocations)
    late = replace(job, deadline_at=job.start_at + (job.until_at - job.start_at) / 50)
    assert 'id="hours"' not in costopt.plan(late, market=market).to_html()
