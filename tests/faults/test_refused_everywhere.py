"""What ``costopt validate`` refuses is refused at every door; a stored one harms no other job."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from costopt.cli.validate import _read
from costopt.daemon.intake.admission import load_submission
from costopt.daemon.loop import job_sync
from costopt.domain.control import Submission
from costopt.domain.errors import SpecError
from costopt.domain.events import JobFinished, NodeEnded, NodeLaunched, RunStopped, WorkLost
from costopt.ledger.summary import JobState
from tests.support import refused_files
from tests.support.daemon_fixtures import POLICY, DaemonScene, document

STRATEGIES = (
    "strategy: {name: adaptve}",
    "strategy: {name: adaptive, parameters: {no_such_parameter: 1}}",
    "strategy: {name: milp, parameters: {time_limit_s: -1}}",
    "strategy: adaptive\nlimits: {max_zone_share: 0.5}",
)
"""What a policy may say that only the strategies can refuse."""


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The texts that the tests of the file formats expect to be refused, by kind."""
    out = tmp_path_factory.mktemp("refused") / "texts.json"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, refused_files.__file__, str(out)],
        cwd=root, env={"PYTHONPATH": str(root), "PATH": ""}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    texts: dict[str, list[str]] = json.loads(out.read_text("utf-8"))
    assert min(map(len, texts.values())) > 30
    texts["policy"] += [f"kind: policy\nversion: 1\nname: p\n{text}\n" for text in STRATEGIES]
    return texts


def _is_valid(kind: str, text: str, folder: Path, now: datetime) -> bool:
    """Return whether ``costopt validate`` accepts the text."""
    file = folder / f"{kind}.yaml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    found, error, _ = _read(str(file), now, [])
    return error is None and found == kind


def _is_admitted(scene: DaemonScene, job: str, policy: str) -> bool:
    """Return whether submit and the API, which read texts by the same call, accept them."""
    try:
        scene.daemon.service.read(job, policy, workdir=str(scene.folder), who="me")
    except SpecError:
        return False
    return True


def _store(scene: DaemonScene, name: str, job: str, policy: str) -> None:
    """Store a submission as an older version may have accepted it."""
    now = scene.clock.now()
    scene.registry.submit(Submission(name, "default", 0, job, policy, str(scene.folder), now, "me"))


@pytest.mark.process
def test_every_door_refuses_what_validate_refuses(
    scene: DaemonScene, refused: dict[str, list[str]]
) -> None:
    scene.submit("innocent", hours=0.3, deadline="2h")
    pairs = [("job", text, POLICY) for text in refused["job"]]
    pairs += [("policy", document(), text) for text in refused["policy"]]
    stored = []
    for number, (kind, job, policy) in enumerate(pairs):
        text = job if kind == "job" else policy
        valid = _is_valid(kind, text, scene.folder, scene.clock.now())
        assert _is_admitted(scene, job, policy) == valid, text
        if not valid and text.isprintable():
            stored.append(f"stored-{number}")
            _store(scene, stored[-1], job, policy)
        elif not valid:
            try:
                _store(scene, f"stored-{number}", job, policy)
                stored.append(f"stored-{number}")
            except SpecError:  # no database holds such a text
                continue
    scene.go(10)
    scene.restart()
    scene.go(20)
    assert scene.daemon.board.tick_failure == ""
    assert scene.job("innocent").summary.state is JobState.FINISHED
    held = {name for name in stored if scene.job(name).blocked_by}
    assert held == set(stored)
    alerted = {alert.job for alert in scene.reader.alerts() if alert.kind == "trouble"}
    assert set(stored) <= alerted or len(alerted) >= 100
    for name in stored:
        scene.daemon.service.cancel(name, "me")
    scene.go(2)
    assert scene.daemon.board.snapshot.troubles == {}


@pytest.mark.parametrize("text", STRATEGIES)
def test_a_policy_that_no_strategy_can_follow_is_not_submitted(
    scene: DaemonScene, text: str
) -> None:
    with pytest.raises(SpecError, match="strategy"):
        scene.submit("one", policy=f"kind: policy\nversion: 1\nname: p\n{text}\n")


def _refuse_one(submission: Submission) -> object:
    if submission.name == "one":
        raise SpecError("this version of costopt refuses its file")
    return load_submission(submission)


def test_a_running_job_that_a_new_version_refuses_saves_and_releases_its_nodes(
    scene: DaemonScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.submit("one", "two", hours=0.5)
    scene.go(12)
    assert len(scene.living("one")) == 1
    with monkeypatch.context() as patch:
        patch.setattr(job_sync, "load_submission", _refuse_one)
        scene.restart()
        scene.go(12)
        assert scene.living("one") == []
        assert "refuses its file" in scene.job().blocked_by
        assert [(a.job, a.kind) for a in scene.reader.alerts()] == [("one", "trouble")]
        assert [event.reason for event in scene.events(RunStopped)] == [
            "held: this version of costopt refuses its file"
        ]
        assert [event.cause for event in scene.events(NodeEnded)] == ["released"]
        scene.restart()
        scene.go(3)
        assert scene.living("one") == []
        assert len(scene.living("two")) == 1
        assert scene.job().summary.state is JobState.STOPPED
        assert scene.job().summary.usd_micros > 0
    scene.restart()
    scene.go(40)
    for name in ("one", "two"):
        assert scene.job(name).summary.state is JobState.FINISHED
        assert len(scene.events(JobFinished, name)) == 1
    assert scene.events(WorkLost) == []
    assert scene.job().blocked_by == ""


@contextmanager
def _refused_while_it_runs(scene: DaemonScene, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Submit a job that a daemon started later holds: a tick ago."""
    scene.submit("one", hours=0.5)
    scene.go(12)
    with monkeypatch.context() as patch:
        patch.setattr(job_sync, "load_submission", _refuse_one)
        scene.restart()
        scene.go(1)
        yield


def test_a_held_job_is_resumed_once_its_nodes_are_released(
    scene: DaemonScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _refused_while_it_runs(scene, monkeypatch):
        pass
    scene.restart()
    scene.daemon.service.resume("one", "me")
    scene.go(45)
    assert scene.job().summary.state is JobState.FINISHED
    assert scene.daemon.board.tick_failure == ""


def test_a_held_job_that_is_paused_and_resumed_while_it_saves_is_still_held(
    scene: DaemonScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _refused_while_it_runs(scene, monkeypatch):
        assert scene.living("one")
        for change in (scene.daemon.service.pause, scene.daemon.service.resume):
            change("one", "me")
            scene.go(1)
        scene.go(12)
        assert scene.living("one") == []
        assert len(scene.events(NodeLaunched)) == 1
        assert "refuses its file" in scene.job().blocked_by
    scene.restart()
    scene.go(45)
    assert scene.job().summary.state is JobState.FINISHED


@pytest.mark.parametrize("cancelled", ["before it is refused", "while it is held"])
def test_a_refused_job_with_nodes_can_be_cancelled(
    scene: DaemonScene, monkeypatch: pytest.MonkeyPatch, cancelled: str
) -> None:
    scene.submit("one", hours=0.5)
    scene.go(12)
    if cancelled == "before it is refused":
        scene.daemon.service.cancel("one", "me")
    monkeypatch.setattr(job_sync, "load_submission", _refuse_one)
    scene.restart()
    scene.go(1)
    if cancelled == "while it is held":
        scene.daemon.service.cancel("one", "me")
    scene.go(10)
    assert scene.living("one") == []
    assert scene.daemon.board.snapshot.troubles == {}
    assert scene.job().summary.state is JobState.STOPPED
    assert scene.daemon.board.tick_failure == ""


def test_a_cancelled_job_is_not_built(scene: DaemonScene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.submit("one", hours=0.5)
    scene.daemon.service.cancel("one", "me")

    def fail(submission: Submission) -> object:
        raise AssertionError(f"{submission.name} was built")

    monkeypatch.setattr(job_sync, "load_submission", fail)
    scene.go(3)
    assert scene.daemon.board.snapshot.troubles == {}


ARRAY = (
    "kind: job\nversion: 1\nname: nightly\narray: {tasks: 4, parallel: 2, duration: 2m}\n"
    "deadline: 5h\nresources: {gpu_models: [V100]}\nrun: [python, eval.py]\n"
    "schedule: {cron: '*/10 * * * *'}\n"
)


def test_an_array_with_a_schedule_recurs(scene: DaemonScene) -> None:
    scene.submit("innocent", hours=0.3)
    service = scene.daemon.service
    service.submit(service.read(ARRAY, POLICY, workdir=str(scene.folder), who="me"))
    scene.go(25)
    assert scene.daemon.board.tick_failure == ""
    assert scene.daemon.board.snapshot.troubles == {}
    occurrences = [job for job in scene.registry.submissions() if job.schedule == "nightly"]
    assert occurrences
    assert scene.job("innocent").summary.state is JobState.FINISHED


@pytest.mark.parametrize(
    "damage", ["schedule: {cron: '99 * * * *'}", "schedule: [1]", "schedule: {cron: '* * * * *'}"]
)
def test_a_recurring_job_that_cannot_be_submitted_is_reported(
    scene: DaemonScene, damage: str
) -> None:
    scene.submit("innocent", hours=0.3)
    known = scene.registry.submission("innocent")
    assert known is not None
    text = f"kind: job\nversion: 1\nname: [x]\ndeadline: soon\n{damage}\n"
    scene.registry.submit(
        replace(known, name="bad", job_document=text, submitted_at=datetime(2023, 1, 1, tzinfo=UTC))
    )
    scene.go(25)
    assert scene.daemon.board.tick_failure == ""
    assert scene.job("innocent").summary.state is JobState.FINISHED
    assert "bad" in scene.daemon.board.snapshot.troubles
    assert scene.job("bad").blocked_by
    assert scene.reader.upcoming(5) == ()
