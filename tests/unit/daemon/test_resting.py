"""Jobs that were over long ago cost a daemon's start nothing, and still count."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Connection

from costopt.domain.account import Account, AccountGuards
from costopt.domain.control import Submission
from costopt.domain.events import LaunchIntended
from costopt.engine.journal import Journal
from costopt.ledger.summary import JobState
from costopt.registry import registry
from tests.support.daemon_fixtures import DaemonScene

pytestmark = pytest.mark.process

WEEKS = 40 * 86_400.0


def opened(scene: DaemonScene, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs whose events a new daemon reads at its first tick."""
    names: list[str] = []
    read = Journal.open

    def noted(journal: Journal, job: str) -> None:
        names.append(job)
        read(journal, job)

    scene.restart()
    with monkeypatch.context() as noting:
        noting.setattr(Journal, "open", noted)
        scene.go(1)
    return names


def test_a_job_that_ended_long_ago_is_not_read_again(
    scene: DaemonScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.submit("one", hours=1.0)
    scene.go(100)
    before = scene.job().summary
    assert before.state is JobState.FINISHED
    scene.daemon.keep_folds()
    assert opened(scene, monkeypatch) == ["one"], "it ended today: its bill may yet come"
    scene.clock.sleep(WEEKS)
    scene.submit("two", hours=1.0)
    assert opened(scene, monkeypatch) == ["two"]
    after = scene.job().summary
    assert (after.state, after.usd_micros, after.finished_at) == (
        before.state, before.usd_micros, before.finished_at,
    )  # fmt: skip
    scene.go(100)
    assert scene.job("two").summary.state is JobState.FINISHED


def test_a_tick_reads_no_unchanged_submission(
    scene: DaemonScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.submit("one", "two", hours=1.0)
    scene.go(100)
    assert scene.job().summary.state is JobState.FINISHED
    read = list[str]()
    find = registry.find_submission

    def noted(connection: Connection, name: str) -> Submission | None:
        read.append(name)
        return find(connection, name)

    monkeypatch.delattr(registry, "list_submissions")
    monkeypatch.setattr(registry, "find_submission", noted)
    scene.submit("three")
    read.clear()
    scene.go(10)
    assert read == ["three"]
    assert len(scene.living("three")) == 1
    scene.daemon.service.pause("three", "me")
    scene.go(10)
    assert scene.living("three") == []
    scene.daemon.service.resume("three", "me")
    scene.go(10)
    assert len(scene.living("three")) == 1


def test_without_kept_folds_every_job_is_read(
    scene: DaemonScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.submit("one", hours=1.0)
    scene.go(100)
    scene.clock.sleep(WEEKS)
    assert opened(scene, monkeypatch) == ["one"]


def test_a_job_that_waits_for_people_is_read(
    scene: DaemonScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.submit("one", hours=9.0)
    scene.go(60)
    scene.daemon.service.pause("one", "me")
    scene.go(20)
    scene.daemon.keep_folds()
    scene.clock.sleep(WEEKS)
    assert opened(scene, monkeypatch) == ["one"]


def test_what_it_cost_still_counts_against_a_total(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = DaemonScene(tmp_path)
    scene.submit("one", hours=1.0)
    scene.go(100)
    usd = scene.job().summary.usd
    scene.daemon.keep_folds()
    scene.clock.sleep(WEEKS)
    scene.account = Account(guards=AccountGuards(max_usd=0.99 * usd))
    scene.submit("two", hours=1.0)
    assert opened(scene, monkeypatch) == ["two"]
    scene.go(30)
    assert scene.events(LaunchIntended, "two") == []
    scene.close()
