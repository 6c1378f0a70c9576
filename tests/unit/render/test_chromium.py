"""The pages in a real Chromium: nothing is loaded, cut off, or drawn over anything else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from costopt.domain.events import JobSubmitted, NodeLaunched
from costopt.ledger.run_view import RunView
from costopt.render.html import write_page
from costopt.render.reports.backtest import backtest_page
from costopt.render.reports.backtest_charts import curve_of_run
from costopt.render.reports.run import run_page
from costopt.render.reports.what_if import what_if_page
from tests.support.chromium import (
    CONTRAST,
    CUT_OFF,
    OVERLAPS,
    SHOWN,
    WIDE_TABLES,
    chromium,
    needs_chromium,
    show,
)
from tests.support.sample_run import START_AT, finished_at, sample_events
from tests.unit.render.test_tables import ROW
from tests.unit.render.test_what_if import POINTS, SCENARIOS

NOW = finished_at() + timedelta(minutes=3)

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder: Path = tmp_path_factory.mktemp("pages")
    run = run_page(sample_events(), now=NOW, title="<script>alert(1)")
    lasting = tuple(
        replace(event, deadline_at=START_AT + timedelta(hours=92))
        if isinstance(event, JobSubmitted)
        else event
        for event in sample_events()
        if isinstance(event, (JobSubmitted, NodeLaunched))
    )
    now = START_AT + timedelta(hours=90)
    long = run_page(lasting, now=now, title="A long run")
    curves = {ROW.policy: curve_of_run(RunView.of(sample_events(), NOW))}
    backtest = backtest_page([ROW], curves, now=NOW)
    what_if = what_if_page(POINTS, SCENARIOS, policy="cheapest", now=NOW)
    pages = {"run": run, "long": long, "backtest": backtest, "what_if": what_if}
    return {
        name: write_page(folder / f"{name}.html", page).as_uri() for name, page in pages.items()
    }


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as each:
        yield each


@pytest.mark.parametrize("width", [400, 700, 1280])
@pytest.mark.parametrize("page", ["run", "long", "backtest", "what_if"])
def test_nothing_overlaps_or_is_cut_off(
    browser: Any, pages: dict[str, str], page: str, width: int
) -> None:
    show(browser, pages[page], width)
    count, overlaps = browser.execute_script(OVERLAPS)
    assert count > 8
    assert overlaps == []
    assert browser.execute_script(CUT_OFF) == [0, []]
    assert browser.execute_script(WIDE_TABLES) == []
    drawings, shown = browser.execute_script(SHOWN)
    assert shown == drawings / 2, "either the wide or the narrow drawing of each plot is shown"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", ["run", "backtest", "what_if"])
def test_all_text_has_the_contrast_of_wcag_aa(
    browser: Any, pages: dict[str, str], page: str, scheme: str
) -> None:
    show(browser, pages[page], 1280, scheme)
    ratio, where = browser.execute_script(CONTRAST)
    assert ratio >= 4.5, where


def test_the_page_loads_nothing_and_complains_of_nothing(
    browser: Any, pages: dict[str, str]
) -> None:
    browser.get_log("performance")
    show(browser, pages["run"], 1280)
    assert browser.get_log("browser") == []
    sent = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {
        message["params"]["request"]["url"]
        for message in sent
        if message["method"] == "Network.requestWillBeSent"
    }
    assert asked == {pages["run"]}
    assert browser.title == "<script>alert(1)"


def test_the_folded_lists_open(browser: Any, pages: dict[str, str]) -> None:
    show(browser, pages["run"], 400)
    shown = "return document.querySelectorAll('details')[1].getBoundingClientRect().height"
    closed = browser.execute_script(shown)
    browser.execute_script("document.querySelectorAll('details summary')[1].click()")
    assert browser.execute_script(shown) > 10 * closed
    assert browser.execute_script(CUT_OFF)[0] == 0
