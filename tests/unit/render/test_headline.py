"""The answer in its first line, alike on every surface."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

import costopt
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.plan import Forecast
from costopt.render.text_table import to_text
from costopt.render.writers import to_html, to_markdown
from costopt.spec import STARTER_JOB
from costopt.views.headline import forecast_headline, saving_text


@pytest.fixture(scope="module")
def market() -> costopt.Market:
    return costopt.read_market("sample")


@pytest.fixture(scope="module")
def planned(market: costopt.Market) -> costopt.PlanResult:
    job = costopt.load_job(STARTER_JOB, now=market.first_priced_at)
    return costopt.plan(job, market=market)


def known(planned: costopt.PlanResult) -> Forecast:
    assert planned.forecast is not None
    return planned.forecast


def test_every_surface_begins_with_the_same_answer(planned: costopt.PlanResult) -> None:
    table = planned.table()
    assert table.lead.startswith("Done ")
    for text in (to_text(table, 80), repr(planned)):
        assert " ".join(text.split()).startswith(table.lead)
    assert to_markdown(table).index(table.lead) < to_markdown(table).index("|")
    for page in (to_html(table), planned._repr_html_()):
        assert page.index("expected (P95") < page.index("<table")


def test_the_answer_says_when_how_sure_and_for_how_much(planned: costopt.PlanResult) -> None:
    forecast = replace(
        known(planned), usd_mean=40.0, usd_p95=55.5, kwh=12.25,
        on_time=Estimate(0.97, 0.95, 0.98, Basis.MODELLED, "runs"),
    )  # fmt: skip
    job = replace(planned.job, deadline_at=forecast.finish_p50_at + timedelta(hours=3))
    said = forecast_headline(job, forecast, 100.0)
    assert "3 h before the deadline, P(on time) 97.0 %" in said
    assert "$40.00 expected (P95 $55.50); $100.00 on demand, so 60 % saved; 12.2 kWh." in said


def test_what_is_unknown_is_left_out_and_a_late_finish_is_after(
    planned: costopt.PlanResult,
) -> None:
    forecast = replace(known(planned), kwh=None, gco2e=None, energy_basis=None)
    job = replace(planned.job, deadline_at=forecast.finish_p50_at - timedelta(hours=1))
    said = forecast_headline(job, forecast, None)
    assert "1 h after the deadline" in said
    assert said.endswith("; energy unknown.")
    assert "on demand" not in said


def test_costlier_than_on_demand_saves_nothing() -> None:
    assert saving_text(10.0, 8.0) == "; $8.00 on demand"


def test_no_line_is_wider_than_a_terminal_of_80_columns(
    planned: costopt.PlanResult, market: costopt.Market
) -> None:
    compared = costopt.what_if(planned.job, ["cheapest", "on-demand"], market=market)
    for table in (planned.table(), compared.table()):
        assert max(map(len, to_text(table, 80).splitlines())) <= 80


def test_only_wide_text_says_how_the_figures_came_about(planned: costopt.PlanResult) -> None:
    table = planned.table()
    assert table.details
    assert table.details[0] not in to_text(table, 100)
    assert table.details[0] in to_text(table, 10_000)
