"""A trainer that is done and hangs in its exit is ended, and what hangs holds nothing else up."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from costopt.agent import exit_watch
from costopt.agent.exit_watch import ExitWatch, processor_s
from costopt.agent.trainer import Trainer
from costopt.protocol.messages import NodeActivity
from tests.support.live_run import wait_until
from tests.support.manual_clock import ManualClock
from tests.unit.agent.test_loop import PATIENCE_S, Make, Node, make, served

__all__ = ["make"]
pytestmark = pytest.mark.process

DONE = """
import os, pathlib, time
from costopt.protocol.trainer_files import *
status = TrainerStatus(1, TrainerState.FINISHED, time.time(), done_units=9.0, saved_units=9.0,
                       message="all saved")
status.write(pathlib.Path(os.environ["COSTOPT_STATUS_FILE"]))
pathlib.Path("done").touch()
"""
HANGS = DONE + "import threading; threading.Event().wait()"


@pytest.fixture
def up(make: Make) -> Node:
    return make(exit_s=0.5)


def test_a_trainer_that_is_done_and_hangs_has_finished(up: Node) -> None:
    up.run(HANGS)
    beat = up.ends_as(NodeActivity.FINISHED)
    assert beat.saved_units == 9.0
    assert "did not exit" in beat.message
    assert up.mailbox.failures() == ()


@pytest.mark.parametrize(
    ("cpu_per_s", "printed_per_s", "hung_after_s"),
    [
        (0.0, 0, 100.0),
        (0.01, 0, 100.0),  # threads that poll
        (0.5, 0, None),
        (0.0, 1, None),
        (None, 0, 400.0),  # in a container, where only the log is known
        (None, 1, None),
    ],
)
def test_a_script_that_computes_or_prints_after_its_last_step_is_left_to_end(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    cpu_per_s: float | None,
    printed_per_s: int,
    hung_after_s: float | None,
) -> None:
    clock = ManualClock(monkeypatch, exit_watch)
    began = clock.now_s
    monkeypatch.setattr(
        exit_watch,
        "processor_s",
        lambda _: None if cpu_per_s is None else cpu_per_s * (clock.now_s - began),
    )
    trainer, watch, hung_after = Silent(tmp_path / "log"), ExitWatch(100.0), None
    while hung_after is None and clock.now_s < began + 900.0:
        with trainer.log_path.open("a") as log:
            log.write("x" * printed_per_s)
        if watch.is_hung(trainer):
            hung_after = clock.now_s - began
        clock.now_s += 1.0
    assert hung_after == (hung_after_s and pytest.approx(hung_after_s, abs=6.0))


class Silent(Trainer):
    """A command of which nothing runs."""

    pids = ()

    def __init__(self, log_path: Path) -> None:
        self.log_path = log_path


def test_a_trainer_that_is_not_done_is_never_ended_for_being_idle(up: Node) -> None:
    up.run("import pathlib, threading; pathlib.Path('up').touch(); threading.Event().wait()")
    up.until((up.workdir / "up").exists)
    until_at = time.monotonic() + 2.0
    up.until(lambda: time.monotonic() > until_at)
    assert up.state() in (NodeActivity.STARTING, NodeActivity.TRAINING)


def test_the_agent_sends_heartbeats_while_it_waits_for_a_trainer_to_stop(make: Make) -> None:
    node = make(poll_s=0.01, grace_s=PATIENCE_S)
    node.run(
        "import pathlib, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "pathlib.Path('up').touch()\n"
        "while not pathlib.Path('enough').exists(): time.sleep(0.01)\n"
    )
    with served(node):
        wait_until((node.workdir / "up").exists, "the trainer", PATIENCE_S)
        node.agent.request_exit()
        wait_until(lambda: node.state() is NodeActivity.STOPPING, "the departure", PATIENCE_S)
        first = node.mailbox.heartbeat("n1")
        assert first is not None
        wait_until(lambda: beats(node) >= first.beat + 3, "heartbeats", PATIENCE_S)
        (node.workdir / "enough").touch()
    wait_until(lambda: node.state() is NodeActivity.GONE, "its end", PATIENCE_S)


def beats(node: Node) -> int:
    beat = node.mailbox.heartbeat("n1")
    return 0 if beat is None else beat.beat


def test_processor_time_counts_descendants() -> None:
    grandchild = "sum(range(30_000_000)); import time; time.sleep(1000)"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grandchild!r}])"
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        wait_until(lambda: (processor_s([process.pid]) or 0.0) > 0.3, "its work", PATIENCE_S)
        process.kill()
    assert processor_s([process.pid]) is None


def test_without_proc_the_processor_time_is_unknown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(exit_watch, "PROC", tmp_path)
    assert processor_s([os.getpid()]) is None
