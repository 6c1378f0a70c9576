"""Recurring jobs: each occurrence takes place once, through pauses, overlaps and restarts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from costopt.daemon.reader import TenantReader
from costopt.domain.control import DesiredState
from costopt.domain.events import JobFinished
from costopt.ledger.summary import JobState
from tests.support.daemon_fixtures import POLICY, DaemonScene, document
from tests.support.market_fixtures import T0

pytestmark = pytest.mark.process


def submit(scene: DaemonScene, hours: float = 0.25, options: str = "") -> None:
    """A job of every second hour."""
    schedule = f'schedule: {{cron: "0 */2 * * *"{options}}}\n'
    text = document("night", hours=hours, more=schedule, deadline="3h")
    service = scene.daemon.service
    service.submit(service.read(text, POLICY, workdir=str(scene.folder), who="me"))


def occurrences(scene: DaemonScene) -> dict[str, DesiredState]:
    """The hours of the occurrences that were submitted."""
    statuses = scene.reader.jobs()
    return {
        status.submission.name.removeprefix("night-2023021"): status.submission.desired_state
        for status in statuses
        if status.submission.schedule == "night"
    }


def skipped(scene: DaemonScene) -> list[str]:
    return [entry.detail for _, entry in scene.registry.changes() if entry.what == "skip"]


def test_each_occurrence_is_a_job_with_its_own_deadline(scene: DaemonScene) -> None:
    submit(scene)
    scene.go(300)
    assert list(occurrences(scene)) == ["5T0200Z", "5T0400Z"]
    for hour, name in ((2, "night-20230215T0200Z"), (4, "night-20230215T0400Z")):
        status = scene.job(name)
        assert status.summary.state is JobState.FINISHED
        assert status.summary.deadline_at == T0 + timedelta(hours=hour + 3)
        assert len(scene.events(JobFinished, name)) == 1
    schedule = scene.job("night")
    assert schedule.next_at == T0 + timedelta(hours=6)
    assert schedule.summary.launches == 0
    assert schedule.blocked_by == ""


def test_what_comes_next_is_listed(scene: DaemonScene) -> None:
    submit(scene)
    upcoming = scene.reader.upcoming(2)
    assert [each.at for each in upcoming] == [T0 + timedelta(hours=h) for h in (2, 4)]
    assert upcoming[0].deadline_at == T0 + timedelta(hours=5)
    assert TenantReader(scene.daemon.service, "another").upcoming(2) == ()


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (", catch_up: skip", []),
        ("", ["5T1000Z"]),
        (", catch_up: all, overlap: allow", [f"5T{h:02}00Z" for h in (2, 4, 6, 8, 10)]),
    ],
)
def test_what_was_missed_takes_place_as_the_file_says(
    scene: DaemonScene, options: str, found: list[str]
) -> None:
    submit(scene, options=options)
    scene.go(1)
    scene.clock.sleep(11 * 3600)
    scene.restart()
    scene.go(30)
    assert list(occurrences(scene)) == found
    assert len(skipped(scene)) == 5 - len(found)
    for name in found:
        deadline_at = scene.job(f"night-2023021{name}").summary.deadline_at
        assert deadline_at == T0 + timedelta(hours=14, minutes=1), "it counts from the catching up"
    scene.restart()
    scene.go(5)
    assert list(occurrences(scene)) == found, "a restart repeats none"


def test_a_daemon_that_restarts_at_the_minute_misses_nothing(scene: DaemonScene) -> None:
    submit(scene, options=", catch_up: skip")
    scene.go(119)
    scene.clock.sleep(300)
    scene.restart()
    scene.go(5)
    assert list(occurrences(scene)) == ["5T0200Z"]


@pytest.mark.parametrize(
    ("overlap", "found"),
    [
        ("skip", {"5T0200Z": DesiredState.RUN}),
        ("allow", {"5T0200Z": DesiredState.RUN, "5T0400Z": DesiredState.RUN}),
        ("cancel", {"5T0200Z": DesiredState.CANCELLED, "5T0400Z": DesiredState.RUN}),
    ],
)
def test_occurrences_overlap_as_the_file_says(
    scene: DaemonScene, overlap: str, found: dict[str, DesiredState]
) -> None:
    submit(scene, hours=2.5, options=f", overlap: {overlap}")
    scene.go(245)
    assert occurrences(scene) == found
    assert len(skipped(scene)) == (overlap == "skip")


def test_a_paused_schedule_submits_nothing_and_catches_nothing_up(scene: DaemonScene) -> None:
    submit(scene)
    scene.daemon.service.pause("night", "me")
    scene.go(130)
    assert scene.reader.upcoming(5) == ()
    scene.daemon.service.resume("night", "me")
    scene.go(115)
    assert list(occurrences(scene)) == ["5T0400Z"]
    scene.daemon.service.cancel("night", "me")
    scene.go(130)
    assert list(occurrences(scene)) == ["5T0400Z"]
    scene.restart()
    scene.go(130)
    assert list(occurrences(scene)) == ["5T0400Z"]


def test_a_job_that_has_an_occurrence_s_name_stops_that_one_alone(scene: DaemonScene) -> None:
    submit(scene)
    scene.submit("night-20230215T0200Z", hours=0.1)
    scene.go(125)
    assert "night-20230215T0200Z" in scene.job("night").blocked_by
    scene.go(120)
    assert list(occurrences(scene)) == ["5T0400Z"]
    assert scene.job("night").blocked_by == ""
