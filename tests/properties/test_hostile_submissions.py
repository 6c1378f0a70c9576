"""Whatever is submitted beside it, or was stored by an older version, a job finishes on time."""

from __future__ import annotations

import random
import tempfile
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from costopt.daemon.watch.metrics_snapshot import collect_metrics
from costopt.domain.control import Submission
from costopt.domain.errors import CostoptError, SpecError
from costopt.domain.events import JobFinished
from tests.support.daemon_fixtures import DaemonScene
from tests.support.hostile_files import JOBS, POLICIES, hostile_file

HOSTILE_JOBS = 10


def _submit_or_store(scene: DaemonScene, name: str, chances: random.Random) -> None:
    """Submit a hostile job; of those that are refused, store some as if they had been accepted."""
    job = hostile_file(chances, JOBS, name)
    policy = hostile_file(chances, POLICIES)
    folder = str(scene.folder)
    service = scene.daemon.service
    try:
        service.submit(service.read(job, policy, workdir=folder, who="me"))
    except SpecError:
        if chances.random() < 0.5:
            now: datetime = scene.clock.now()
            with suppress(CostoptError):
                scene.registry.submit(
                    Submission(name, "default", 0, job, policy, folder, now, "me")
                )


@pytest.mark.slow
@settings(max_examples=40, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(seed=st.integers(0, 2**32))
def test_no_submission_harms_another_job(seed: int) -> None:
    chances = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, closing(DaemonScene(Path(folder))) as scene:
        scene.submit("innocent", hours=0.4, deadline="2h")
        for number in range(HOSTILE_JOBS):
            _submit_or_store(scene, f"hostile-{number}", chances)
        for _ in range(35):
            scene.go(1)
            assert scene.daemon.board.tick_failure == ""
        (finished,) = scene.events(JobFinished, "innocent")
        assert finished.at <= scene.clock.now()
        scene.restart()
        scene.go(2)
        assert scene.daemon.board.tick_failure == ""
        scene.reader.jobs()
        scene.reader.upcoming(10)
        collect_metrics(scene.daemon.service)
        for job in scene.reader.jobs():
            with suppress(SpecError):  # it has finished
                scene.daemon.service.cancel(job.submission.name, "me")
        scene.go(12)
        assert scene.daemon.board.tick_failure == ""
        assert scene.daemon.board.snapshot.nodes == ()
