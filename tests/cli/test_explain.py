"""costopt explain: every decision in a row, and one with what was weighed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from costopt.cli.main import cli
from costopt.controller.state_dir import LEDGER
from costopt.domain.events import DecisionMade, GuardTripped
from costopt.ledger.sql_ledger import open_sqlite_ledger
from tests.support.market_fixtures import after
from tests.support.sample_run import sample_events

SPOT = "aws/us-west-2/us-west-2a/p3.2xlarge/spot"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A job with one decision that was explained, and one that was not."""
    first = DecisionMade(
        at=after(0),
        job="train",
        decision_id="train-d1",
        targets=((SPOT, 2),),
        reason="cheapest to the end",
        slack_s=7200.0,
        alternatives=(
            (f"2 × {SPOT}", 12.5, "up for 0.3 h, ends 1.1 times an hour"),
            ("wait", 14.0, "comes back 0.8 times an hour"),
            ("2 × elsewhere", None, "too few nodes"),
        ),
    )
    second = DecisionMade(
        at=after(60), job="train", decision_id="train-d2", targets=(), reason="gone", rule="shield"
    )
    with open_sqlite_ledger(tmp_path / LEDGER) as ledger:
        for event in (first, second):
            ledger.append(event)
    return tmp_path


def explain(state: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ("explain", *words, "--state-dir", str(state)))


def test_every_decision_in_a_row(state: Path) -> None:
    reported = json.loads(explain(state, "train", "-o", "json").stdout)
    assert reported["schema"] == "costopt.explain/1"
    assert [row["decision"] for row in reported["rows"]] == ["train-d1", "train-d2"]
    assert [row["choice"] for row in reported["rows"]] == [f"2 × {SPOT}", "wait"]
    assert [row["weighed"] for row in reported["rows"]] == [3, 0]


def test_one_with_what_was_weighed(state: Path) -> None:
    reported = json.loads(explain(state, "train", "train-d1", "-o", "json").stdout)
    assert reported["schema"] == "costopt.explain.decision/1"
    assert reported["slack_s"] == 7200
    rows = reported["rows"]
    assert [row["value_usd"] for row in rows] == [12.5, 14.0, None]
    assert [row["more_usd"] for row in rows] == [0.0, 1.5, None]
    assert [row["chosen"] for row in rows] == [True, False, False]
    shown = explain(state, "train", "train-d1").stdout
    assert reported["rule"] is None
    assert "slack 2 h" in shown
    assert re.search(r"\b1\.1\b", shown)


def test_the_last_and_what_was_not_recorded(state: Path) -> None:
    done = explain(state, "train", "last")
    assert done.exit_code == 0
    assert "train-d2" in done.stdout
    assert "shield" in done.stdout
    assert "--explain" in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("train", "train-d3"), 2, "has no decision 'train-d3'; did you mean 'train-d"),
        (("nobody",), 1, "no job 'nobody' has run"),
    ],
)
def test_what_does_not_exist_is_said(
    state: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    done = explain(state, *words)
    assert done.exit_code == code
    assert said in done.stderr
    assert done.stdout == ""


def test_a_ledger_of_before_can_be_explained_too(tmp_path: Path) -> None:
    events = sample_events()
    with open_sqlite_ledger(tmp_path / LEDGER) as ledger:
        for event in events:
            ledger.append(event)
    done = explain(tmp_path, events[0].job, "-o", "csv")
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) > 2


def test_a_guard_that_said_no_is_the_rule_that_bound_it(state: Path) -> None:
    with open_sqlite_ledger(state / LEDGER) as ledger:
        ledger.append(
            DecisionMade(at=after(90), job="train", decision_id="train-d3", targets=((SPOT, 2),),
                         reason="cheapest"),
            GuardTripped(at=after(90), job="train", guard="max_nodes", message="2 would exceed 1"),
        )  # fmt: skip
    reported = json.loads(explain(state, "train", "-o", "json").stdout)
    assert [row["rule"] for row in reported["rows"]] == [None, "shield", "guard max_nodes"]
    shown = " ".join(explain(state, "train", "last").stdout.split())
    assert "2 would exceed 1" in shown
    assert shown.count("guard max_nodes") == 2
