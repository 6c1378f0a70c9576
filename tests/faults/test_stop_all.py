"""`costopt stop --all`: jobs save, nodes are released, and providers' lists say what is left."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from costopt.domain import events as ev
from costopt.domain.control import DesiredState
from tests.faults import test_aws_job
from tests.faults.test_aws_job import Run
from tests.support import forked_commands
from tests.support.aws.overlay.faults import unauthorized
from tests.support.counting_trainer import hold, let_go
from tests.support.live_daemon import DaemonPlace
from tests.support.live_run import PATIENCE_S, Place, no_traceback, wait_until
from tests.support.node_folder import variables

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

STOP = ("-m", "costopt", "stop", "--all", "--state-dir", "state", "-o", "json")
run = test_aws_job.run


def stop_on_aws(run: Run, *more: str) -> subprocess.CompletedProcess[str]:
    environment = variables(**run.environment)
    return forked_commands.run([*STOP, *more], run.folder, environment, PATIENCE_S)


def left(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [row["name"] for row in json.loads(done.stdout)["rows"]]


def test_a_run_that_lives_saves_and_the_same_command_resumes_it(tmp_path: Path) -> None:
    place = Place(tmp_path, steps=60).write()
    hold(place.saves, 30)
    with place.controlled() as process:
        wait_until(lambda: bool(place.of(ev.TrainingStarted)), "training")
        done = place.call("stop", "--all", "--state-dir", "state", "-o", "json")
        assert done.returncode == 0, done.stderr
        assert left(done) == []
        assert process.wait(PATIENCE_S) == 128 + signal.SIGINT
        assert place.processes() == []
        _, said = process.communicate()
    assert "the same command resumes it" in said
    saved = place.of(ev.CheckpointCommitted)
    assert saved
    let_go(place.saves)
    finished = place.finish()
    assert finished.returncode == 0, finished.stderr
    assert place.of(ev.TrainingStarted)[-1].units > 0


def test_nodes_of_a_killed_run_save_and_are_released(run: Run) -> None:
    run.hold.touch()
    with run.controlled() as process:
        run.wait(lambda: bool(run.of(ev.TrainingStarted)), "training")
        process.kill()
        process.wait()
    saves = run.saves()
    done = stop_on_aws(run)
    assert done.returncode == 0, done.stderr
    assert no_traceback(done.stderr)
    assert left(done) == []
    assert run.cloud.alive() == []
    assert len(run.saves()) > len(saves)
    assert {event.node_id for event in run.of(ev.NodeEnded)} == {
        event.node_id for event in run.of(ev.NodeLaunched)
    }


def test_what_carries_the_owner_tag_and_no_ledger_knows_is_named(run: Run) -> None:
    run.hold.touch()
    with run.controlled() as process:
        run.wait(lambda: bool(run.of(ev.NodeLaunched)), "launch")
        process.kill()
        process.wait()
    (run.folder / "state").rename(run.folder / "elsewhere")
    done = stop_on_aws(run, "--within", "2s")
    assert done.returncode == 1
    assert left(done) == run.cloud.alive() != []


def test_a_region_that_does_not_answer_is_named(run: Run) -> None:
    run.cloud.faults.on("ec2", "DescribeInstances", unauthorized)
    done = stop_on_aws(run, "--within", "1s")
    assert done.returncode == 1
    assert left(done) != []


def test_jobs_of_a_daemon_are_paused_and_can_be_resumed(tmp_path: Path) -> None:
    place = DaemonPlace(tmp_path).write()
    names = ("one", "two")
    for name in names:
        place.submit(name)
        hold(place.saves(name), 30)
    process = place.start()
    words = ["-m", "costopt", "stop", "--all", "-o", "json"]
    try:
        wait_until(lambda: all(place.of(n, ev.TrainingStarted) for n in names), "training")
        server = ["--server", f"unix:{place.state / 'daemon.sock'}"]
        done = forked_commands.run([*words, *server], tmp_path, variables(), PATIENCE_S)
        assert done.returncode == 0, done.stderr
        assert left(done) == []
        assert place.processes() == []
        assert "costopt resume one" in done.stderr
        for name in names:
            assert place.of(name, ev.CheckpointCommitted)
            let_go(place.saves(name))
            place.tell(name, DesiredState.RUN)
        wait_until(lambda: all(place.of(n, ev.JobFinished) for n in names), "end of both")
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
        place.clear()
