"""The daemon's pages in a real Chromium: by keyboard, on a phone, in the dark, under attack."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from costopt.daemon.pages.layout import PLACES
from tests.support.chromium import (
    CONTRAST,
    CUT_OFF,
    OVERLAPS,
    SHOWN,
    chromium,
    needs_chromium,
    show,
)
from tests.support.daemon_pages import PAUSED, RUNNING, Shown, shown
from tests.support.live_run import PATIENCE_S
from tests.unit.daemon.test_pages import PAGES

pytestmark = needs_chromium

SPILLS = """
const out = [];
for (const e of document.querySelectorAll('main section, main table, main dl, main form, .bar'))
  if (e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    out.push(e.tagName + ' ' + e.id);
return out;
"""
UNDER_A_WORD = """
return [...document.querySelectorAll('tbody td')].filter(e => e.offsetParent)
  .map(e => [e.getBoundingClientRect(), e.textContent])
  .filter(([r, t]) => r.width < 30 && t.length > 4).map(([, t]) => t);
"""
STOPS = """
return [...document.querySelectorAll('a[href], button, input, summary, [tabindex="0"]')]
  .filter(e => e.checkVisibility() && e.type !== 'hidden').length;
"""
FOCUSED = """
const e = document.activeElement, style = getComputedStyle(e);
return [e.tagName, e.textContent.trim().slice(0, 30), style.outlineStyle, e.id,
  e.getBoundingClientRect().top >= 0];
"""
REFRESHES = "return document.querySelectorAll('meta[http-equiv=refresh]').length"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    with shown(tmp_path_factory.mktemp("daemon")) as each:
        each.service.halt("prices look odd", "mara")
        yield each


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory, daemon: Shown) -> Iterator[Any]:
    """One that has handed its token over, by keyboard."""
    from selenium.webdriver.common.keys import Keys

    with chromium(tmp_path_factory.mktemp("profile")) as each:
        show(each, f"{daemon.url}/jobs/{RUNNING}", 1280)
        assert each.current_url == f"{daemon.url}/login?then=/jobs/{RUNNING}"
        each.find_element("id", "token").send_keys("wrong" + Keys.ENTER)
        until(each, lambda: each.find_elements("id", "refused"))
        assert each.find_element("id", "refused").text
        each.find_element("id", "token").send_keys(daemon.token() + Keys.ENTER)
        until(each, lambda: each.current_url == f"{daemon.url}/jobs/{RUNNING}")
        # A page that reloads while it is read would forget where the keyboard was.
        show(each, f"{daemon.url}/guards", 1280)
        switch_refreshing(each, "Stop reloading", 0)
        yield each


@pytest.mark.parametrize("width", [360, 700, 1280])
@pytest.mark.parametrize("path", PAGES)
def test_nothing_is_cut_off_or_squeezed(browser: Any, daemon: Shown, path: str, width: int) -> None:
    show(browser, daemon.url + path, width)
    assert browser.execute_script(CUT_OFF) == [0, []]
    assert browser.execute_script(UNDER_A_WORD) == []
    if width == 360:
        assert browser.execute_script(SPILLS) == []


@pytest.mark.parametrize("width", [360, 1280])
def test_a_jobs_curves_are_drawn_as_in_its_report(browser: Any, daemon: Shown, width: int) -> None:
    show(browser, f"{daemon.url}/jobs/{RUNNING}", width)
    count, overlaps = browser.execute_script(OVERLAPS)
    assert count > 8
    assert overlaps == []
    drawings, seen = browser.execute_script(SHOWN)
    assert (drawings, seen) == (8, 4)


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize(("path", "charts"), [("/", 2), ("/jobs", 1), ("/ledger", 2)])
def test_charts_of_all_jobs_are_legible(
    browser: Any, daemon: Shown, path: str, charts: int, width: int
) -> None:
    show(browser, f"{daemon.url}{path}", width)
    count, overlaps = browser.execute_script(OVERLAPS)
    assert count > 5
    assert overlaps == []
    assert browser.execute_script(SHOWN) == [2 * charts, charts]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["/", "/jobs", f"/jobs/{RUNNING}", "/market", "/ledger", "/login"])
def test_all_text_has_the_contrast_of_wcag_aa(
    browser: Any, daemon: Shown, path: str, scheme: str
) -> None:
    show(browser, daemon.url + path, 1280, scheme)
    ratio, where = browser.execute_script(CONTRAST)
    assert ratio >= 4.5, where


@pytest.mark.parametrize("path", PAGES)
def test_hostile_words_do_nothing(browser: Any, daemon: Shown, path: str) -> None:
    browser.get_log("performance")
    browser.get_log("browser")
    show(browser, daemon.url + path, 1280)
    assert browser.title.endswith(" · costopt")
    refused = [
        e["message"] for e in browser.get_log("browser") if "Content Security" in e["message"]
    ]
    assert refused == []
    sent = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {
        message["params"]["request"]["url"]
        for message in sent
        if message["method"] == "Network.requestWillBeSent"
    }
    own = {f"{daemon.url}{each}" for each in (path, "/pages.css", "/pages.svg")}
    assert {daemon.url + path} <= asked <= own


def test_a_keyboard_skips_to_the_content(browser: Any, daemon: Shown) -> None:
    show(browser, f"{daemon.url}/jobs", 1280)
    press(browser, "TAB")
    assert browser.execute_script(FOCUSED)[2:] == ["solid", "", True]
    press(browser, "ENTER")
    assert browser.execute_script(FOCUSED)[3] == "main"
    press(browser, "TAB")
    assert browser.execute_script(FOCUSED)[3] == "q", "the next stop lies in the content"


@pytest.mark.parametrize("path", ["/jobs", f"/jobs/{RUNNING}", "/proposals"])
def test_a_keyboard_reaches_everything_and_shows_where_it_is(
    browser: Any, daemon: Shown, path: str
) -> None:
    show(browser, daemon.url + path, 1280)
    stops = browser.execute_script(STOPS)
    seen: set[tuple[object, ...]] = set()
    for _ in range(stops):
        press(browser, "TAB")
        tag, text, outline, name, _ = browser.execute_script(FOCUSED)
        assert tag != "BODY", f"after {len(seen)} of {stops}"
        assert outline != "none", (tag, text)
        seen.add((tag, text, name, len(seen)))
    assert len(seen) == stops
    press(browser, "TAB")
    assert browser.execute_script(FOCUSED)[0] in ("BODY", "HTML", "A")


@pytest.mark.process
def test_a_tenant_looks_at_its_part_on_any_screen(
    tmp_path_factory: pytest.TempPathFactory, daemon: Shown
) -> None:
    from selenium.webdriver.common.keys import Keys

    with chromium(tmp_path_factory.mktemp("tenant")) as each:
        show(each, f"{daemon.url}/guards", 1280)
        token = daemon.token(tenant="research")
        each.find_element("id", "token").send_keys(token + Keys.ENTER)
        until(each, lambda: each.current_url == f"{daemon.url}/guards")
        for path in (*(path for path, _ in PLACES), f"/jobs/{RUNNING}"):
            for width in (360, 1280):
                show(each, daemon.url + path, width)
                assert each.title.endswith(" · costopt"), path
                assert each.execute_script(CUT_OFF) == [0, []]
                assert PAUSED not in each.page_source
        (badge,) = each.get_cookies()
        assert (badge["httpOnly"], badge["sameSite"]) == (True, "Strict")
        assert badge["value"] != token
        each.find_element("xpath", "//button[text()='Log out']").click()
        until(each, lambda: each.current_url == f"{daemon.url}/login")
        assert each.get_cookies() == []


def test_the_refreshing_can_be_switched_off(browser: Any, daemon: Shown) -> None:
    show(browser, f"{daemon.url}/guards", 1280)
    switch_refreshing(browser, "Reload it every 30 s", 1)
    switch_refreshing(browser, "Stop reloading", 0)
    show(browser, f"{daemon.url}/market", 1280)
    assert browser.execute_script(REFRESHES) == 0, "nor on the next page"


def test_a_table_stays_a_table_to_a_screen_reader_on_a_phone(browser: Any, daemon: Shown) -> None:
    show(browser, f"{daemon.url}/market", 360)
    browser.execute_cdp_cmd("Accessibility.enable", {})
    nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = [node.get("role", {}).get("value") for node in nodes]
    assert roles.count("table") == 2
    assert roles.count("rowheader") == 6
    assert roles.count("columnheader") == 10


def switch_refreshing(browser: Any, text: str, refreshes: int) -> None:
    browser.find_element("link text", text).click()
    until(browser, lambda: browser.execute_script(REFRESHES) == refreshes)


def until(browser: Any, holds: Callable[[], object]) -> None:
    """Wait for the page that a key or a click leads to."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, PATIENCE_S).until(lambda _: holds())


def press(browser: Any, name: str) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    ActionChains(browser).send_keys(getattr(Keys, name)).perform()
