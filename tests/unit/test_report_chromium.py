"""The pages in a real Chromium: nothing is loaded, cut off, or drawn over anything else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from costopt.domain.events import JobSubmitted, NodeLaunched
from costopt.report.backtest_curve import curve_of_run
from costopt.report.html import (
    write_backtest_report,
    write_run_report,
    write_what_if_report,
)
from costopt.report.run import Run
from tests.sample_run import START_AT, finished_at, sample_events
from tests.unit.test_report_tables import ROW
from tests.unit.test_report_what_if import POINTS, SCENARIOS

NOW = finished_at() + timedelta(minutes=3)
BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")

pytestmark = pytest.mark.skipif(
    BROWSER is None or DRIVER is None,
    reason="needs Debian's chromium and chromium-driver",
)

OVERLAPS = """
const texts = [...document.querySelectorAll('svg.plot text')]
  .map(t => [t.textContent, t.getBoundingClientRect()]).filter(([, r]) => r.width > 0);
const hits = [];
for (let i = 0; i < texts.length; i++) for (let j = i + 1; j < texts.length; j++) {
  const [a, p] = texts[i], [b, q] = texts[j];
  if (p.left < q.right && q.left < p.right && p.top < q.bottom - 1 && q.top < p.bottom - 1)
    hits.push(a + ' / ' + b);
}
return [texts.length, hits];
"""

CUT_OFF = """
const width = document.documentElement.clientWidth;
const out = [...document.querySelectorAll('svg.plot text')]
  .map(t => [t.textContent, t.getBoundingClientRect()])
  .filter(([, r]) => r.width > 0 && (r.left < 0 || r.right > width)).map(([t]) => t);
return [document.documentElement.scrollWidth - width, out];
"""

SHOWN = """
const plots = [...document.querySelectorAll('svg.plot')];
return [plots.length, plots.filter(p => p.getBoundingClientRect().width > 0).length];
"""

CONTRAST = """
const rgb = css => css.match(/[\\d.]+/g).slice(0, 3).map(Number);
const light = css => rgb(css).map(v => v / 255)
  .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const back = e => { while (e) { const c = getComputedStyle(e).backgroundColor;
  if (!/rgba\\(.*, 0\\)|transparent/.test(c)) return c; e = e.parentElement; }
  return 'rgb(0,0,0)'; };
let worst = [99, ''];
for (const e of document.querySelectorAll('h1,h2,p,dt,dd,td,th,li,strong,summary,svg.plot text')) {
  const style = getComputedStyle(e), svg = e.tagName === 'text';
  const [a, b] = [light(svg ? style.fill : style.color), light(back(e))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < worst[0]) worst = [ratio, e.tagName + ' ' + e.textContent.trim().slice(0, 40)];
}
return worst;
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder: Path = tmp_path_factory.mktemp("pages")
    run = write_run_report(sample_events(), folder / "run.html", now=NOW, title="<script>alert(1)")
    lasting = tuple(
        replace(event, deadline_at=START_AT + timedelta(hours=92))
        if isinstance(event, JobSubmitted)
        else event
        for event in sample_events()
        if isinstance(event, (JobSubmitted, NodeLaunched))
    )
    now = START_AT + timedelta(hours=90)
    long = write_run_report(lasting, folder / "long.html", now=now, title="A long run")
    curves = {ROW.strategy: curve_of_run(Run.of(sample_events(), NOW))}
    backtest = write_backtest_report([ROW], curves, folder / "backtest.html", now=NOW)
    what_if = write_what_if_report(
        POINTS, SCENARIOS, folder / "what_if.html", policy="cheapest", now=NOW
    )
    written = {"run": run, "long": long, "backtest": backtest, "what_if": what_if}
    return {name: path.as_uri() for name, path in written.items()}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    for flag in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={tmp_path_factory.mktemp('profile')}",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    yield driver
    driver.quit()


def show(browser: Any, uri: str, width: int, scheme: str = "light") -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get(uri)


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
