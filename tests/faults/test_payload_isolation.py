"""The folder of one job that cannot be read delays that job alone, and it is said why it waits."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from costopt.controller import payload
from costopt.controller.payload import MAX_FILES, write_bundle
from costopt.daemon.daemon import Daemon
from costopt.daemon.intake.admission import AdmittedJob
from costopt.daemon.intake.submission_loader import SubmissionLoader
from costopt.daemon.loop import payload_preparer
from costopt.daemon.loop.payload_preparer import MAX_THREADS_PER_TENANT, PayloadPreparer
from costopt.domain.control import Submission
from costopt.domain.errors import SpecError, StoreError
from costopt.domain.job import Job
from costopt.domain.policy import Policy
from costopt.ledger.summary import JobState
from costopt.spec.yaml_document import parse_document
from tests.support.daemon_fixtures import POLICY, DaemonScene, document
from tests.support.market_fixtures import T0, training_job


class HangingFolder:
    """A folder whose files cannot be read until ``answer`` is called."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self._answers = Event()

    def read(self, folder: Path | str) -> None:
        if str(folder) == self.folder:
            self._answers.wait()

    def answer(self) -> None:
        self._answers.set()


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[HangingFolder]:
    folder = HangingFolder(tmp_path / "hanging")
    yield folder
    folder.answer()


def _submit(scene: DaemonScene, name: str, workdir: Path, text: str | None = None) -> None:
    workdir.mkdir(exist_ok=True)
    service = scene.daemon.service
    text = text or document(name, hours=0.2)
    service.submit(service.read(text, POLICY, workdir=str(workdir), who="me"))


def _go(scene: DaemonScene, minutes: int, *waiting: str) -> None:
    """As ``scene.go``, without waiting for the threads of jobs in ``waiting``."""
    for _ in range(minutes):
        scene.daemon.tick()
        scene.daemon.readiness.prepare()
        others = [name for name in scene.daemon._controlled().engine.jobs if name not in waiting]
        _wait_until(scene.daemon, others)
        scene.clock.sleep(60)


def _wait_until(daemon: Daemon, ready: list[str]) -> None:
    while any(daemon.readiness.waiting_reason(name) for name in ready):
        time.sleep(0.001)


def test_a_folder_that_hangs_delays_only_its_own_jobs(
    scene: DaemonScene, hanging: HangingFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = scene.daemon._site
    scene.daemon._site = replace(site, upload_payload=lambda job: hanging.read(job.workdir))
    for name in ("stuck", "stuck-too"):
        _submit(scene, name, Path(hanging.folder))
    _submit(scene, "innocent", scene.folder)
    _go(scene, 20, "stuck", "stuck-too")
    assert scene.job("innocent").summary.state is JobState.FINISHED
    assert scene.job("stuck").blocked_by == "its files are being packed and uploaded"
    assert scene.living("stuck") == []
    assert scene.reader.alerts() == ()
    monkeypatch.setattr(payload_preparer, "SLOW_S", 0.0)
    _go(scene, 1, "stuck", "stuck-too")
    assert hanging.folder in scene.job("stuck").blocked_by
    assert [(alert.kind, alert.job) for alert in scene.reader.alerts()] == [("trouble", "stuck")]
    hanging.answer()
    scene.go(20)
    assert scene.job("stuck").summary.state is JobState.FINISHED
    assert scene.job("stuck-too").summary.state is JobState.FINISHED


@pytest.mark.process
@pytest.mark.parametrize("name", [".costoptignore", ".git/HEAD", "train.py", "data"])
def test_a_fifo_in_a_folder_holds_up_nothing(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    if name.startswith(".git"):
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        (folder / name).unlink()
    else:
        (folder / "kept.py").touch()
    os.mkfifo(folder / name)
    target = tmp_path / "bundle"
    if name == ".costoptignore":
        with pytest.raises(SpecError, match="cannot be read"):
            write_bundle(folder, target)
    else:
        write_bundle(folder, target)
        assert target.stat().st_size > 0


def test_a_file_that_becomes_a_fifo_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("x")
    member = payload._member

    def replaced(tar: object, root: Path, path: Path) -> object:
        found = member(tar, root, path)  # type: ignore[arg-type]
        path.unlink()
        os.mkfifo(path)
        return found

    monkeypatch.setattr(payload, "_member", replaced)
    with pytest.raises(SpecError, match=r"train\.py"):
        write_bundle(folder, tmp_path / "bundle")


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    (folder / "out").symlink_to("/etc/passwd")
    with pytest.raises(SpecError, match="outside the job's folder"):
        write_bundle(folder, tmp_path / "bundle")


def test_a_folder_of_too_many_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_FILES >= 10_000
    monkeypatch.setattr(payload, "MAX_FILES", 3)
    folder = tmp_path / "code"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.py").touch()
    with pytest.raises(SpecError, match="more than 3 files"):
        write_bundle(folder, tmp_path / "bundle")


def _job(name: str, tenant: str = "default") -> Job:
    return replace(training_job(), name=name, tenant=tenant, workdir=f"/{name}")


def test_a_tenant_whose_folders_all_hang_delays_no_other_tenant() -> None:
    answers = Event()

    def receive(job: Job) -> Job:
        if job.tenant == "red":
            answers.wait()
        return job

    preparer = PayloadPreparer(receive, lambda: None)
    for number in range(MAX_THREADS_PER_TENANT + 5):
        preparer.request(_job(f"red-{number}", "red"))
    preparer.request(_job("blue", "blue"))
    preparer.prepare()
    while not preparer.is_ready("blue"):
        time.sleep(0.001)
    assert not any(preparer.is_ready(f"red-{number}") for number in range(20))
    answers.set()
    preparer.join()
    assert preparer.is_ready(f"red-{MAX_THREADS_PER_TENANT + 4}")


def test_whatever_a_folder_raises_is_the_jobs_own() -> None:
    def receive(job: Job) -> Job:
        if job.name == "bad":
            raise RecursionError("too deep")
        return job

    preparer = PayloadPreparer(receive, lambda: None)
    preparer.request(_job("bad"))
    preparer.request(_job("good"))
    preparer.prepare()
    preparer.join()
    assert preparer.is_ready("good")
    assert preparer.error("bad") == "RecursionError: too deep"


def test_a_file_of_parameters_that_hangs_is_not_waited_for(
    hanging: HangingFolder, tmp_path: Path
) -> None:
    def load(submission: Submission) -> AdmittedJob:
        hanging.read(submission.workdir)
        document = parse_document("name: llm", "job.yaml")
        return AdmittedJob(submission, training_job(), Policy("any"), document)

    loader = SubmissionLoader(load)
    stuck = Submission("stuck", "default", 0, "array: {}", "", hanging.folder, T0, "me")
    well = replace(stuck, name="well", workdir=str(tmp_path))
    for _ in range(2):
        with pytest.raises(StoreError, match="does not answer"):
            loader.load(stuck)
    assert loader.load(well).submission is well
    hanging.answer()
    while True:
        with suppress(StoreError):
            assert loader.load(stuck).submission is stuck
            return
        time.sleep(0.001)
