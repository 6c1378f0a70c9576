"""What a run refuses, and what ends it early: one message, the right exit code, nothing left."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from costopt.cli.main import cli
from costopt.controller.state_dir import daemon_lock, run_lock
from costopt.domain import events as ev
from costopt.ledger.sql_ledger import open_sqlite_ledger
from tests.support.counting_trainer import hold, let_go
from tests.support.errors import failure
from tests.support.live_run import CALM, PLAIN, Place, no_traceback

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

DAY_S = 86_400
NO_REGION = """kind: policy
version: 1
name: elsewhere
strategy: milp
limits: {regions: [eu-west-1]}
"""


def refused(place: Place, code: int, *said: str, more: tuple[str, ...] = ()) -> None:
    """A run that ends before any launch."""
    run = place.finish(*more)
    assert run.returncode == code, run.stderr
    assert run.stderr.count("error: ") == 1
    assert no_traceback(run.stderr)
    for words in said:
        assert words in run.stderr
    assert place.processes() == []


def test_a_state_directory_that_is_a_file(tmp_path: Path) -> None:
    place = Place(tmp_path).write()
    place.state.write_text("")
    refused(place, 2, "--state-dir")


def test_a_ledger_that_is_none(tmp_path: Path) -> None:
    place = Place(tmp_path).write()
    place.state.mkdir()
    (place.state / "ledger.sqlite").write_bytes(b"garbage" * 500)
    refused(place, 1, "ledger.sqlite: it is not a costopt database", "→")
    assert (place.state / "ledger.sqlite").read_bytes() == b"garbage" * 500


def test_a_clock_that_is_none(tmp_path: Path) -> None:
    place = Place(tmp_path, run=["false"], steps=2).write()
    place.finish()
    (place.state / "jobs" / "tiny" / "clock.json").write_text("{}")
    refused(place, 1, "clock.json: the run's clock cannot be read", "→ choose another --state-dir")


def test_a_start_outside_the_record(tmp_path: Path) -> None:
    place = Place(tmp_path).write()
    refused(place, 2, "--at", "2026-01-15 00:00Z", more=("--at", "2027-01-01T00:00:00Z"))
    refused(place, 2, "--at", "2026-01-05 00:00Z", more=("--at", "2020-01-01T00:00:00Z"))


def test_no_plan_no_launch(tmp_path: Path) -> None:
    place = Place(tmp_path, deadline="6m").write()
    refused(place, 3, "no plan finishes tiny", "deadline", "→")
    (tmp_path / "elsewhere.yaml").write_text(NO_REGION)
    place.deadline = "8h"
    place.write_job()
    refused(place, 3, "us-east-1 not allowed", more=("--policy", "elsewhere.yaml"))
    assert place.events() == []


def test_a_refused_run_does_not_set_the_clock_of_the_next(tmp_path: Path) -> None:
    place = Place(tmp_path, deadline="6m").write()
    refused(place, 3)
    clock = place.state / "jobs" / "tiny" / "clock.json"
    began = json.loads(clock.read_text())
    clock.write_text(json.dumps(began | {"wall_s": began["wall_s"] - DAY_S}))
    place.deadline, place.steps = "8h", 2
    place.write_job()
    assert place.finish().returncode == 0
    (submitted,) = place.of(ev.JobSubmitted)
    assert (submitted.at - submitted.start_at).total_seconds() < DAY_S


def test_a_state_directory_that_a_daemon_uses(tmp_path: Path) -> None:
    place = Place(tmp_path).write()
    place.state.mkdir()
    with daemon_lock(place.state):
        refused(place, 1, "a daemon uses the state directory", "→ hand the job to it")


def test_a_daemon_where_a_run_uses_the_state_directory(tmp_path: Path) -> None:
    place = Place(tmp_path).write()
    place.state.mkdir()
    market = str(place.folder / "market.parquet")
    with run_lock(place.state):
        done = CliRunner().invoke(
            cli, ["daemon", "--state-dir", str(place.state), "--market", market]
        )
    assert done.exit_code == 1
    assert failure(done).code == "in_use"


def test_a_daemon_that_cannot_listen_begins_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path).write()
    asked = ["daemon", "--market", str(tmp_path / "market.parquet"), "--listen", "nowhere"]
    refused = CliRunner().invoke(cli, [*asked, "--state-dir", str(place.state)])
    assert (refused.exit_code, failure(refused).code) == (2, "invalid_address")
    assert {path.suffix for path in place.state.iterdir()} == {".lock"}


def test_a_job_that_is_finished(tmp_path: Path) -> None:
    place = Place(tmp_path, steps=2).write(CALM)
    first = place.finish()
    assert first.returncode == 0, "a market without on-demand pools is no reason to refuse"
    refused(place, 1, "is finished already", "→ see it with `costopt report tiny")


def test_a_month_that_a_finished_run_has_spent(tmp_path: Path) -> None:
    place = Place(tmp_path, steps=40).write()
    assert place.finish().returncode == 0
    spent_usd = place.status()["usd_micros"] / 1e6
    (tmp_path / "plain.yaml").write_text(f"{PLAIN}limits: {{max_usd_per_month: {spent_usd}}}\n")
    place.steps = 2
    place.write_job()
    job = tmp_path / "job.yaml"
    job.write_text(job.read_text().replace("name: tiny", "name: next"))
    refused(place, 4, "job 'next' was stopped by guard max_usd_per_month")
    with open_sqlite_ledger(place.state / "ledger.sqlite", create=False) as ledger:
        of_next = [recorded.event for recorded in ledger.events("next")]
    assert [event.guard for event in of_next if isinstance(event, ev.GuardTripped)] == [
        "max_usd_per_month"
    ]
    assert not [event for event in of_next if isinstance(event, ev.LaunchIntended)]


@pytest.mark.exhaustive("jobs on simulated nodes")
def test_a_market_that_ends_before_the_job(tmp_path: Path) -> None:
    place = Place(tmp_path, deadline="3h")
    gone = {
        "a/g4dn.xlarge/spot": ((0, 2, 0.2), (2400, 0, 0.2)),
        "a/g4dn.xlarge/on_demand": ((0, 8, 0.526), (2300, None, None)),
    }
    place.write(gone, hours=0.8)
    hold(place.saves, 40)
    run = place.finish()
    assert run.returncode == 1
    note, error = (
        next(line for line in run.stderr.splitlines() if line.startswith(kind))
        for kind in ("note: market 'typed'", "error: market 'typed'")
    )
    assert "2026-01-05 00:48Z" in note
    assert "2026-01-05 00:48 UTC" in error
    assert no_traceback(run.stderr)
    assert place.processes() == []
    assert {n.node_id for n in place.of(ev.NodeEnded)} == {"sim-0001"}


@pytest.mark.exhaustive("jobs on simulated nodes")
def test_a_budget_that_runs_out_and_is_raised(tmp_path: Path) -> None:
    place = Place(tmp_path, extra="budget: {usd: 0.16}\n").write()
    hold(place.saves, 40)
    run = place.finish()
    assert run.returncode == 4, run.stderr
    assert "guard max_usd" in run.stderr
    assert "→ " in run.stderr
    assert place.processes() == []
    steps = [int(path.stem.split("-")[1]) for path in place.saves.glob("step-*.json")]
    assert steps, "it saved before it stopped"
    assert place.finish().returncode == 4, "the same budget is still used up"
    place.extra = "budget: {usd: 1}\n"
    place.write_job()
    let_go(place.saves)
    again = place.finish()
    assert again.returncode == 0, again.stderr
    assert (place.saves / "starts").read_text().split()[-1] == str(max(steps))
