"""No two open jobs of a daemon have one checkpoint place."""

from __future__ import annotations

from pathlib import Path

import pytest

from costopt.checkpoint.commit import Committer, SaveRequest
from costopt.checkpoint.identity import ANOTHER_JOB, JobIdentity
from costopt.checkpoint.repository import CheckpointRepository
from costopt.client.client import ApiError
from costopt.domain.control import DesiredState, Scope
from costopt.domain.errors import SpecError
from costopt.ledger.summary import JobState
from tests.support.daemon_api import JOB, served
from tests.support.daemon_fixtures import POLICY, DaemonScene, document
from tests.support.errors import has_code

pytestmark = pytest.mark.process


def submit(scene: DaemonScene, name: str, uri: str, more: str = "", hours: float = 0.25) -> None:
    text = document(name, hours=hours, more=more, deadline="3h").replace(f"saves/{name}", uri)
    service = scene.daemon.service
    service.submit(service.read(text, POLICY, workdir=str(scene.folder), who="me"))


def is_refused(scene: DaemonScene, name: str, uri: str, more: str = "") -> None:
    before = scene.registry.submissions()
    with pytest.raises(SpecError, check=has_code(ANOTHER_JOB)) as caught:
        submit(scene, name, uri, more)
    assert repr(name) in caught.value.message
    assert scene.registry.submissions() == before


def test_a_place_is_free_once_its_job_is_over_and_nothing_is_in_it(scene: DaemonScene) -> None:
    submit(scene, "one", "saves/x")
    is_refused(scene, "two", "saves/../saves/x/")
    scene.go(3)
    is_refused(scene, "two", "saves/x")
    scene.registry.set_desired_state("one", DesiredState.PAUSED, "me", scene.clock.now())
    is_refused(scene, "two", "saves/x/below")
    scene.restart()
    is_refused(scene, "two", "saves/x")
    scene.registry.set_desired_state("one", DesiredState.RUN, "me", scene.clock.now())
    scene.go(90)
    assert scene.job("one").summary.state is JobState.FINISHED
    submit(scene, "two", "saves/x")
    scene.registry.set_desired_state("two", DesiredState.CANCELLED, "me", scene.clock.now())
    submit(scene, "three", "saves/x")


def test_a_folder_that_holds_another_job_s_checkpoints_is_refused(scene: DaemonScene) -> None:
    identity = JobIdentity("costopt", "default", "earlier")
    place = CheckpointRepository.open(str(scene.folder / "saves" / "x"), identity)
    Committer(place, 1).commit(SaveRequest(1, 1, 0.0, {"state.bin": memoryview(b"weights")}))
    is_refused(scene, "one", "saves/x")
    submit(scene, "earlier", "saves/x")


def test_recurring_jobs_share_no_place_and_their_occurrences_run(scene: DaemonScene) -> None:
    every = 'schedule: {cron: "0 */2 * * *"}\n'
    submit(scene, "night", "saves/x", every)
    is_refused(scene, "day", "saves/x", every)
    scene.go(150)
    assert scene.job("night-20230215T0200Z").summary.state is JobState.FINISHED
    is_refused(scene, "one", "saves/x/20230215T0400Z")


def test_the_api_answers_with_the_reason(tmp_path: Path) -> None:
    with served(tmp_path, fill=False) as daemon:
        client = daemon.bearer(Scope.SUBMIT)
        client.send("POST", "jobs", body={"job": JOB.format(name="one")})
        copied = JOB.format(name="one").replace("name: one", "name: two")
        with pytest.raises(ApiError, match="'one'") as caught:
            client.send("POST", "jobs", body={"job": copied})
        assert caught.value.status in (409, 422)
        assert [each.name for each in daemon.registry.submissions()] == ["one"]
