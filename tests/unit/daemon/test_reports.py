"""What all jobs came to, written again and again, in a process of its own."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from costopt.daemon.watch import reports
from costopt.daemon.watch.reports import FIGURES, REPORTS, ReportProcess, list_reports, write_report
from costopt.domain.errors import CostoptError, StoreError
from costopt.render.reports.run import run_page
from tests.support.daemon_fixtures import DaemonScene

pytestmark = pytest.mark.process


def figures(report: Path) -> dict[str, Any]:
    reported: dict[str, Any] = json.loads((report / FIGURES).read_text())
    return reported


def test_the_task_writes_figures_and_a_page_for_each_job(scene: DaemonScene) -> None:
    (task,) = (task for task in scene.daemon.tasks() if task.name == "report")
    assert (task.interval.every_s, task.kept) == (86_400.0, True)
    task.run()
    assert list_reports(scene.folder / REPORTS) == [], scene.said
    scene.submit("one", "two", hours=0.5)
    scene.go(60)
    task.run()
    assert scene.said == []
    (report,) = list_reports(scene.folder / REPORTS)
    reported = figures(report)
    assert reported["schema"] == "costopt.daemon-report/1"
    assert {job["job"]: job["usd_micros"] for job in reported["jobs"]} == {
        name: scene.job(name).summary.usd_micros for name in ("one", "two")
    }
    assert "<svg" in (report / "one.html").read_text()
    assert sorted(path.name for path in (scene.folder / REPORTS).iterdir()) == [report.name]


def test_a_standby_writes_none(scene: DaemonScene) -> None:
    scene.submit("one")
    scene.go(5)
    scene.daemon.board.leads = False
    scene.daemon.report()
    assert list_reports(scene.folder / REPORTS) == []


def test_only_jobs_with_news_have_a_page_and_the_oldest_reports_go(scene: DaemonScene) -> None:
    folder, now = scene.folder / REPORTS, scene.clock.now()
    scene.submit("one", hours=0.3)
    scene.go(40)
    first = write_report(scene.ledger, folder, now, keep=2)
    scene.submit("two")
    scene.go(5)
    second = write_report(scene.ledger, folder, now + timedelta(days=1), keep=2)
    third = write_report(scene.ledger, folder, now + timedelta(days=2), keep=2)
    assert first is not None
    assert second is not None
    assert third is not None
    assert not first.exists()
    assert sorted(path.name for path in second.iterdir()) == [FIGURES, "two.html"]
    assert sorted(path.name for path in third.iterdir()) == [FIGURES]
    assert [job["job"] for job in figures(third)["jobs"]] == ["one", "two"]


def test_a_report_that_was_broken_off_leaves_nothing_behind(scene: DaemonScene) -> None:
    scene.submit("one")
    scene.go(5)
    folder = scene.folder / REPORTS
    (folder / ".begun" / "half").mkdir(parents=True)
    report = write_report(scene.ledger, folder, scene.clock.now(), keep=2)
    assert report is not None
    assert list(folder.iterdir()) == [report]


def test_a_fault_is_reported_and_a_daemon_that_ends_waits_for_none(scene: DaemonScene) -> None:
    scene.submit("one")
    scene.go(5)
    (scene.folder / REPORTS).write_text("in the way")
    scene.daemon.report()
    assert len(scene.said) == 1
    assert "no report was made" in scene.said[0]
    missing = ReportProcess(scene.folder / "none.sqlite", scene.folder, keep=1)
    with pytest.raises(StoreError, match=r"none\.sqlite"):
        missing.make(scene.clock.now())
    missing.end()
    missing.make(scene.clock.now())


def test_a_page_that_cannot_be_made_costs_no_other_jobs_page(
    scene: DaemonScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.submit("one", "two", hours=0.2)
    scene.go(30)

    def fail(events: Any, **rest: Any) -> str:
        if rest["title"] == "one":
            raise ZeroDivisionError("no such luck")
        return run_page(events, **rest)

    monkeypatch.setattr(reports, "run_page", fail)
    with pytest.raises(CostoptError, match="one: ZeroDivisionError"):
        write_report(scene.ledger, scene.folder / REPORTS, scene.clock.now(), 3)
    (report,) = list_reports(scene.folder / REPORTS)
    assert (report / "two.html").exists()
    assert {job["job"] for job in figures(report)["jobs"]} == {"one", "two"}
