"""What plan and what-if write as HTML, in a real Chromium at the width of a desk and a phone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from costopt.cli.main import cli
from tests.support.chromium import (
    BROKEN_NAMES,
    CONTRAST,
    CUT_OFF,
    OVERLAPS,
    WIDE_TABLES,
    chromium,
    needs_chromium,
    show,
)

pytestmark = needs_chromium

JOB = """\
name: llama-tune
work: {amount: 2e6, unit: steps}
deadline: 72h
resources: {gpu_models: [T4, A100, H100, V100], max_nodes: 8}
throughput:
  points:
    - {gpu: T4, units_per_s: 2.6}
    - {gpu: V100, units_per_s: 5}
    - {gpu: A100, units_per_s: 12.5}
    - {gpu: H100, units_per_s: 39.6}
checkpoint: {uri: checkpoints, save: 10s, size_gib: 20}
"""
NUMBERS = """
const shown = [...document.querySelectorAll('section[aria-labelledby=frontier] svg.plot')]
  .find(p => p.getBoundingClientRect().width > 0);
return [...shown.querySelectorAll('text[font-size="11"]')].map(t => t.textContent);
"""
ROWS = """
return [...document.querySelectorAll('#plans, #mixes')]
  .flatMap(heading => [...heading.parentElement.querySelectorAll('tbody tr')])
  .map(row => row.cells[0].textContent);
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pages")
    job = folder / "job.yaml"
    job.write_text(JOB)
    asked = ("--deadlines", "6h,72h", "--capacity", "spot,on_demand,policy")
    commands: dict[str, tuple[str, ...]] = {
        "plan": ("plan", str(job)),
        "explained": ("plan", str(job), "--policy", "greenest", "--explain"),
        "what_if": ("what-if", str(job), *asked),
    }
    written = {}
    for name, command in commands.items():
        done = CliRunner().invoke(cli, [*command, "-o", "html"])
        assert done.exit_code == 0, done.stderr
        written[name] = folder / f"{name}.html"
        written[name].write_text(done.stdout, encoding="utf-8")
    return {name: path.as_uri() for name, path in written.items()}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as each:
        yield each


@pytest.mark.parametrize("width", [420, 800, 1300])
@pytest.mark.parametrize("page", ["plan", "explained", "what_if"])
def test_no_table_is_wider_than_its_card_and_no_pool_name_wraps(
    browser: Any, pages: dict[str, str], page: str, width: int
) -> None:
    show(browser, pages[page], width)
    assert browser.execute_script(WIDE_TABLES) == []
    seen, broken = browser.execute_script(BROKEN_NAMES)
    assert seen > 0
    assert broken == []
    assert browser.execute_script(CUT_OFF) == [0, []]


def test_the_frontier_is_a_table_of_its_own(browser: Any, pages: dict[str, str]) -> None:
    show(browser, pages["what_if"], 1300)
    scenarios, plans = (
        browser.find_element("css selector", f"section[aria-labelledby={each}] table")
        for each in ("scenarios", "plans")
    )
    assert scenarios.location["y"] < plans.location["y"]
    assert len(plans.find_elements("css selector", "tbody tr")) > 1


@pytest.mark.parametrize("width", [420, 1300])
def test_each_dot_bears_the_number_of_its_row_and_one_is_chosen(
    browser: Any, pages: dict[str, str], width: int
) -> None:
    show(browser, pages["what_if"], width)
    rows = browser.execute_script(ROWS)
    assert len(rows) > 2
    labels = browser.execute_script(NUMBERS)
    assert {label.split()[0] for label in labels} == set(rows)
    assert [label for label in labels if label.endswith("cheapest")]
    _, overlaps = browser.execute_script(OVERLAPS)
    assert overlaps == []
    (marked,) = browser.find_elements("css selector", "section[aria-labelledby=plans] tr.marked")
    number = marked.find_element("css selector", "td").text.splitlines()[-1]
    tips = browser.find_elements("css selector", "svg.plot title")
    texts = [each.get_attribute("textContent") for each in tips]
    chosen = [text for text in texts if text.startswith("Chosen")]
    assert chosen == [f"Chosen: plan {number}"] * 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", ["plan", "what_if"])
def test_all_text_has_the_contrast_of_wcag_aa(
    browser: Any, pages: dict[str, str], page: str, scheme: str
) -> None:
    show(browser, pages[page], 420, scheme)
    ratio, where = browser.execute_script(CONTRAST)
    assert ratio >= 4.5, where


def test_the_chosen_row_of_a_plan_stands_out(browser: Any, pages: dict[str, str]) -> None:
    show(browser, pages["plan"], 1300)
    marked = browser.find_elements("css selector", "tbody tr.marked")
    assert marked
    assert all("✔" in row.text for row in marked)


def test_the_page_of_a_plan_begins_with_its_answer(browser: Any, pages: dict[str, str]) -> None:
    show(browser, pages["plan"], 1300)
    lead = browser.find_element("css selector", "header p.lead").text
    assert "before the deadline, P(on time) >" in lead
    assert re.search(r"\$[\d.,]+ expected \(P95 \$[\d.,]+\); \$[\d.,]+ on demand", lead)
