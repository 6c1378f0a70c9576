"""The HTML pages: self-contained, escaped, the same bytes every time, and complete."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from costopt.backtesting.backtest import OPTIMUM
from costopt.backtesting.ranking import PolicySummary
from costopt.backtesting.trial import Score, Trial, Window
from costopt.domain.errors import LedgerError, StoreError
from costopt.domain.events import (
    CarbonIntensityRecorded,
    DecisionMade,
    Event,
    JobFailed,
    JobSubmitted,
    NodeLaunched,
    PriceChanged,
)
from costopt.domain.policy import CarbonSignal
from costopt.ledger.run_view import RunView
from costopt.render import html
from costopt.render.reports import backtest as backtest_report
from costopt.render.reports import run as run_report
from costopt.render.reports.backtest_charts import coincident, curve_of_run
from costopt.render.reports.run_rates import _intensities, _prices, carbon_plot, price_plot
from tests.support.engine_fixtures import rules
from tests.support.errors import has_code
from tests.support.market_fixtures import after, training_job
from tests.support.sample_run import DEADLINE_AT, SPOT_A, START_AT, finished_at, sample_events
from tests.unit.render.test_tables import ROW

NOW = finished_at() + timedelta(minutes=3)
HOSTILE = "<script>alert(1)</script>\"'&{{ 7*7 }}$x_1$"
VOID = {"meta", "br", "path", "rect", "circle", "use", "hr"}


class Page(HTMLParser):
    """What a page holds, and whether its tags close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def values(self, name: str) -> list[str]:
        return [value for _, key, value in self.attributes if key == name]


def run_page(
    events: tuple[Event, ...] = sample_events(), title: str = "Sample"
) -> tuple[str, Page]:
    text = run_report.run_page(events, now=NOW, title=title)
    return text, Page(text)


def backtest_page(rows: tuple[PolicySummary, ...]) -> tuple[str, Page]:
    curves = {row.policy: curve_of_run(RunView.of(sample_events(), NOW)) for row in rows}
    text = backtest_report.backtest_page(rows, curves, now=NOW, title="Backtest")
    return text, Page(text)


def assert_stands_alone(text: str, page: Page) -> None:
    assert not {"script", "link", "img", "iframe", "object", "base"} & set(page.tags)
    assert not page.values("src")
    assert all(value.startswith("#") for value in page.values("href") + page.values("xlink:href"))
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert not re.search(r"url\((?!#)|@import", text)
    twice = [name for name, count in Counter(page.values("id")).items() if count > 1]
    assert not twice
    named = set(page.values("id"))
    assert {value[1:] for value in page.values("xlink:href")} <= named
    assert set(re.findall(r"url\(#([^)]*)\)", text)) <= named
    assert set(re.findall(r"var\(--(\w+)\)", text)) <= set(re.findall(r"--(\w+):", text))
    assert "<title>" in text
    assert "viewport" in page.values("name")


@pytest.mark.slow
def test_a_run_shows_prices_carbon_and_decisions() -> None:
    launched = next(e for e in sample_events() if isinstance(e, NodeLaunched))
    at = START_AT + timedelta(minutes=90)
    more = (
        PriceChanged(at=at, job=launched.job, pool=SPOT_A, micros_per_hour=77_000_000),
        CarbonIntensityRecorded(
            at=at, job=launched.job, region="aws/us-east-2", hour_at=START_AT, gco2e_per_kwh=123.0,
            carbon_signal=CarbonSignal.AVERAGE, source="test",
        ),
    )  # fmt: skip
    run = RunView.of((*sample_events(), *more), NOW)
    prices = {rate.value for rate in _prices(run) if str(rate.pool) == SPOT_A}
    assert 21.4 in prices
    recorded = [rate for rate in _intensities(run) if rate.is_recorded]
    assert {rate.value for rate in recorded} == {123.0}
    assert all(rate.end_at <= START_AT + timedelta(hours=1) for rate in recorded)
    carbon = carbon_plot(run)
    assert carbon is not None
    assert [entry.symbol for entry in carbon.legend] == ["line", "dash"]
    assert "from 123 to 414" in carbon.alt
    assert price_plot(run) is not None
    text = run_report.run_page(run.events, now=NOW, title="t")
    for decision in run.decisions:
        assert text.count(f"<title>{decision.decision_id}: {decision.reason}") == 2
    table = text[text.index('id="decisions"') :]
    assert all(decision.decision_id in table for decision in run.decisions)


@pytest.mark.slow
def test_what_was_expected_is_shown_beside_what_was_spent() -> None:
    weighed = tuple(
        replace(event, alternatives=((event.choice(), 400.0, ""), ("wait", 900.0, "")))
        if isinstance(event, DecisionMade)
        else event
        for event in sample_events()
    )
    run = RunView.of(weighed, NOW)
    totals = run.expected_totals()
    assert totals[0] == (run.decisions[0].at, 400.0)
    assert [usd for _, usd in totals] == sorted(usd for _, usd in totals)
    assert totals[-1][1] > 450
    assert RunView.of(sample_events(), NOW).expected_totals() == []
    text, _ = run_page(weighed)
    assert "$400.00 expected at the first decision" in text


def test_lines_that_coincide_are_drawn_in_stripes() -> None:
    line = [(0.0, 0.0), (10.0, 100.0)]
    near = [(0.0, 0.0), (5.0, 50.5), (10.0, 101.0)]
    apart = [(0.0, 0.0), (10.0, 90.0)]
    assert coincident({"a": line, "b": apart, "c": near, "d": []}) == [["a", "c"], ["b"]]
    assert coincident({}) == []


def test_a_backtest_shows_each_window_and_how_policies_differ() -> None:
    window = Window("m", training_job())
    scores = []
    for name, usd in (("milp", 280.0), ("greedy", 300.0)):
        policy = replace(rules("on_demand"), name=name)
        for hour in range(8):
            job = replace(training_job(), start_at=after(3600 * hour))
            scores.append((Trial(replace(window, job=job), policy), Score(usd=usd + hour % 2)))
    rows = [
        replace(ROW, misses=0, runs=8),
        replace(ROW, misses=0, runs=8, policy="greedy", mean_usd=300.5),
    ]
    text = backtest_report.backtest_page(rows, {}, scores=scores)
    assert "one window" in text
    (line,) = re.findall(
        r"<tr><th[^>]*><span[^>]*>greedy.*?</tr>|<tr><th[^>]*>greedy.*?</tr>", text
    )[:1]
    assert "+$20.00" in line
    assert "0 of 8 windows" in line
    lead = re.findall(r'<p class="lead">(.*?)</p>', text)[0]
    assert "8 windows (P(late) &lt;31.3 %)" in lead


@pytest.mark.slow
def test_the_run_page_stands_alone() -> None:
    assert_stands_alone(*run_page())


def test_the_backtest_page_stands_alone() -> None:
    assert_stands_alone(*backtest_page((ROW, replace(ROW, policy="greedy"))))


@pytest.mark.slow
def test_the_run_page_shows_the_totals_of_the_run() -> None:
    text, page = run_page()
    for said in (
        "Finished 29 min before its deadline.",
        "$353.04; $519.60 on demand, so 32 % saved;",
        "$353.04",
        "32 % below on-demand at the declared speed; 47 % of it on spot",
        "81.2 kWh",
        "33.6 kg",
        "2,400 steps",
        "i-0d2",
        "Checkpoint refused",
        "All 135 events",
    ):
        assert said in page.text, said
    assert page.text.count("measured") >= 4
    assert page.text.count("modelled") >= 2
    assert page.tags["svg"] >= 8
    assert len([v for v in page.values("aria-label") if v]) == 12
    assert page.tags["th"] > 8
    assert page.tags["details"] == 2
    assert "prefers-color-scheme: dark" in text


@pytest.mark.slow
def test_the_same_events_give_the_same_bytes() -> None:
    assert run_page()[0] == run_page()[0]
    assert backtest_page((ROW,))[0] == backtest_page((ROW,))[0]


def hostile_events() -> tuple[Event, ...]:
    """The sample run with every name that a user or a cloud chooses turned hostile."""
    pool = f"aws/r/{HOSTILE.replace('/', '')}/t/spot"
    events: list[Event] = []
    for event in sample_events(HOSTILE):
        changes: dict[str, Any] = {}
        if getattr(event, "pool", None) == SPOT_A:
            changes["pool"] = pool
        for field in ("reason", "message", "uri", "policy", "strategy", "unit", "cause"):
            if type(getattr(event, field, None)) is str:
                changes[field] = HOSTILE
        events.append(replace(event, **changes))
    return tuple(events)


@pytest.mark.slow
def test_nothing_that_others_wrote_becomes_markup() -> None:
    text, page = run_page(hostile_events(), HOSTILE)
    assert_stands_alone(text, page)
    assert "<script" not in text
    assert page.text.count(HOSTILE) > 20
    title = f"aws {HOSTILE.replace('/', '')} · t · spot"
    assert page.text.count(title) == 1 + 1, "the wide timeline and prices name it"
    text, page = backtest_page((replace(ROW, policy=HOSTILE),))
    assert_stands_alone(text, page)
    assert "<script" not in text
    assert HOSTILE in page.text


def test_other_scripts_and_control_characters_are_carried() -> None:
    _, page = run_page(sample_events("学習\x00\x1b[31m 🚀"), "é — 学習 🚀 \udcff")
    assert "é — 学習 🚀" in page.text


def only(*kinds: type[Event]) -> tuple[Event, ...]:
    return tuple(event for event in sample_events() if isinstance(event, kinds))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("events", "said"),
    [
        (only(JobSubmitted), "Unfinished"),
        (only(JobSubmitted, NodeLaunched), "Unfinished"),
        (only(NodeLaunched), "Not submitted yet"),
        (sample_events()[:40], "Unfinished, 26 min left"),
        (
            (*sample_events()[:20], JobFailed(at=NOW, job="llama-7b-finetune", message="exit 1")),
            "Failed; the job's own command ended with an error. $246.72 so far;",
        ),
        (sample_events(gco2e_per_kwh=None), "carbon intensity is unknown"),
    ],
    ids=["nothing ran", "just launched", "no submission", "under way", "failed", "no carbon"],
)
def test_a_run_under_way_or_with_unknowns_has_a_page(events: tuple[Event, ...], said: str) -> None:
    text, page = run_page(events)
    assert_stands_alone(text, page)
    assert said in page.text
    assert "None" not in page.text
    assert "nan" not in text


def test_a_far_deadline_does_not_squeeze_the_run() -> None:
    far = tuple(
        replace(event, deadline_at=DEADLINE_AT + timedelta(days=30))
        if isinstance(event, JobSubmitted)
        else event
        for event in sample_events()
    )
    text, page = run_page(far)
    assert "Finished 30 d before its deadline" in page.text
    assert ">deadline</text>" not in text


@pytest.mark.slow
def test_a_long_run_stays_readable_and_small() -> None:
    launched = next(event for event in sample_events() if isinstance(event, NodeLaunched))
    nodes = tuple(
        replace(
            launched,
            node_id=f"n{index}",
            at=START_AT + timedelta(minutes=index),
            launched_at=START_AT + timedelta(minutes=index),
        )
        for index in range(300)
    )
    text, page = run_page((*only(JobSubmitted), *nodes))
    assert len(text) < 2_000_000
    assert "100 more nodes are in the ledger." in page.text
    assert "(+180 rows)" in page.text


def test_no_events_and_several_jobs_are_refused() -> None:
    with pytest.raises(LedgerError, check=has_code("no_events")):
        run_page(())
    with pytest.raises(LedgerError, check=has_code("wrong_job")):
        run_page((*sample_events("a"), *sample_events("b")))


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, check=has_code("unwritable")) as caught:
        html.write_page(tmp_path / "missing" / "run.html", "page")
    assert caught.value.hint


def test_an_empty_backtest_says_so() -> None:
    text, page = backtest_page(())
    assert_stands_alone(text, page)
    assert "There are no runs to compare." in page.text


def test_the_lead_of_a_backtest_is_not_an_oracle() -> None:
    best = replace(ROW, policy=OPTIMUM, mean_usd=1.0, misses=0)
    _, page = backtest_page((replace(ROW, policy="greedy", misses=0), best))
    assert "greedy kept every deadline" in page.text
    assert "hindsight optimum kept" not in page.text
