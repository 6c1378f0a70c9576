"""Commands that fail, know nothing of costopt, or fetch what is cached."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest

from costopt.domain import events as ev
from costopt.domain.fleet import EndCause
from costopt.ledger.job_account import JobAccount
from costopt.store.folder import FileStore
from tests.support.counting_trainer import hold, let_go
from tests.support.known_figure import known
from tests.support.live_run import (
    CALM,
    PATIENCE_S,
    UNINTERRUPTIBLE,
    Place,
    no_traceback,
    wait_until,
)
from tests.support.node_folder import ROOT


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize(
    ("command", "extra", "said"),
    [
        (["sh", "-c", "echo no such corpus >&2; exit 1"], "", "exited with 1 on node sim-0001"),
        (["nosuchcommand"], "", "cannot run nosuchcommand: No such file or directory"),
    ],
)
def test_a_command_that_fails_is_named_with_its_node_and_log(
    tmp_path: Path, command: list[str], extra: str, said: str
) -> None:
    place = Place(tmp_path, run=command, extra=extra).write()
    run = place.finish()
    assert run.returncode == 1
    assert no_traceback(run.stderr)
    message = run.stderr[run.stderr.index("error: ") :]
    assert message.count("error: ") == 1
    assert said in message
    assert "sim-0001" in message
    assert "trainer-000003.log" in message
    assert "→ correct the cause" in message
    assert place.processes() == []
    assert len(place.of(ev.NodeEnded)) == len(place.of(ev.NodeLaunched)) == 1
    assert place.of(ev.JobFailed)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_fixed_command_goes_on_under_the_same_deadline(tmp_path: Path) -> None:
    place = Place(tmp_path, run=["false"], steps=10).write()
    failed = place.finish()
    assert failed.returncode == 1
    assert "it printed nothing" in failed.stderr
    place.run = []
    place.write_job()
    again = place.finish()
    assert again.returncode == 0, again.stderr
    assert len({event.deadline_at for event in place.of(ev.JobSubmitted)}) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_command_that_reports_nothing_is_done_when_it_ends(tmp_path: Path) -> None:
    """It lasts longer than the plan expects of it, and is left to end all the same."""
    place = Place(tmp_path, run=["sh", "-c", "sleep 3"], steps=10).write()
    run = place.finish()
    assert run.returncode == 0, run.stderr
    (finished,) = place.of(ev.JobFinished)
    assert finished.units == 10
    assert len(place.of(ev.NodeLaunched)) == 1
    assert place.processes() == []


GETS_FURTHER = """
import os, pathlib, sys, time
saved = pathlib.Path("own_checkpoint")
step = int(saved.read_text()) if saved.exists() else 0
for step in range(step + 1, step + 3):
    time.sleep(PACE_S)
    saved.write_text(str(step))
    print("step", step, flush=True)
    if step == 10:
        sys.exit(0)
os.kill(os.getpid(), 9)  # as the kernel does where memory is short
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.exhaustive("jobs on simulated nodes")
@pytest.mark.slow
def test_a_command_that_gets_further_at_each_start_is_not_failed(tmp_path: Path) -> None:
    """It reports nothing to costopt: that it ran for half an hour each time has to do."""
    script = GETS_FURTHER.replace("PACE_S", "2.0")
    place = Place(tmp_path, run=[sys.executable, "-c", script], steps=10).write()
    run = place.finish()
    assert run.returncode == 0, run.stderr
    assert place.of(ev.JobFinished)
    assert not place.of(ev.JobFailed)
    stopped = [e.reason for e in place.of(ev.TrainingStopped) if "exited with -9" in e.reason]
    assert len(stopped) == 4, "each crash is in the ledger, with its last line"


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_the_job_file_says_how_many_failures_are_allowed(tmp_path: Path) -> None:
    place = Place(tmp_path, run=["false"], steps=10, extra="max_failures: 1").write()
    run = place.finish()
    assert run.returncode == 1
    assert "failed once" in run.stderr
    assert len(place.of(ev.GangFormed)) == 1


EXAMPLE = ROOT / "examples" / "own_checkpoints" / "train.py"


NOTICE_S = 1500


# Twice, since a slow machine may miss the first: it trains for longer than between two notices.
TAKEN = {
    "a/g4dn.xlarge/spot": (
        *((0, 1, 0.05), (3000, 0, 0.05), (3300, 1, 0.05)),
        *((6300, 0, 0.05), (6600, 1, 0.05)),
    )
}


STEPS = 300


@pytest.mark.exhaustive("jobs on simulated nodes")
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_it_is_interrupted_and_loses_nothing(tmp_path: Path) -> None:
    place = Place(
        tmp_path,
        steps=STEPS,
        run=["python", "train.py", "--steps", str(STEPS), "--pace", "0.02", "--output", "saves"],
    )
    place.write(TAKEN | UNINTERRUPTIBLE)
    shutil.copy(EXAMPLE, tmp_path)
    run = place.finish("--notice", str(NOTICE_S))
    assert run.returncode == 0, run.stderr
    assert EndCause.INTERRUPTED in [event.cause for event in place.of(ev.NodeEnded)]
    (finished,) = place.of(ev.JobFinished)
    assert finished.units == STEPS
    logs = sorted(place.state.rglob("trainer-*.log"), key=lambda log: log.stat().st_mtime)
    said = "".join(log.read_text() for log in logs)
    assert "on SIGTERM" in said, "the notice reached the script"
    done = "0"
    for begins_at, saved in re.findall(r"starting at step (\d+)|saved step (\d+)", said):
        assert begins_at in ("", done), "no step was done twice"
        done = saved or done
    model = json.loads((place.saves / "model.json").read_text())
    assert model["step"] == STEPS
    assert place.processes() == []
    assert_training_was_counted(place)


def assert_training_was_counted(place: Place) -> None:
    """Nodes draw busy power while the script runs, though it says nothing of how far it is."""
    assert all(event.units is None for event in place.of(ev.TrainingStarted))
    account = JobAccount("tiny")
    for event in place.of(ev.Event):
        account.apply(event)
    (finished,) = place.of(ev.JobFinished)
    rows = account.intervals(finished.at)
    interrupted = [row for row in rows if row.cause is EndCause.INTERRUPTED]
    # Each ran for 30 minutes or more, of which start-up and restore take five.
    assert all(known(row.busy_wh) > known(row.idle_wh) for row in interrupted)


CACHE = "cache: [{uri: bucket, to: weights, size_gib: 0.001}]\n"


WEIGHTS = b"w" * 2**20


def kill_trainer(place: Place) -> None:
    """As the kernel does where memory runs out: the node and its agent live on."""
    for pid in place.processes():
        if b"counting_trainer.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)


def at_step(place: Place, step: int) -> bool:
    reported = place.of(ev.ProgressReported)
    return bool(reported) and reported[-1].done_units >= step


@pytest.mark.exhaustive("jobs on simulated nodes")
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_second_start_on_a_node_fetches_nothing_and_another_node_does(tmp_path: Path) -> None:
    FileStore(tmp_path / "bucket").put("model/weights", WEIGHTS)
    place = Place(tmp_path, extra=CACHE)
    stepper = place.stepper(0.05)[2]
    copy = 'cat "$COSTOPT_CACHE_DIR/weights/model/weights" >> read; '
    place.run = ["sh", "-c", copy + stepper]
    hold(place.saves, 15)
    place.write(CALM)
    with place.controlled() as process:
        wait_until(lambda: at_step(place, 14), "training")
        hold(place.saves, 35)
        kill_trainer(place)
        wait_until(lambda: at_step(place, 34), "training again on the node")
        (first,) = place.of(ev.CacheFetched)
        let_go(place.saves)
        for pid in place.processes():
            os.kill(pid, signal.SIGKILL)
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said
    starts = [line.split()[1] for line in (place.saves / "starts").read_text().splitlines()]
    assert len(starts) == 3
    assert starts[0] == starts[1] != starts[2]
    both = place.of(ev.CacheFetched)
    assert [each.node_id for each in both] == [starts[0], starts[2]]
    assert both[0] == first
    assert all(each.gib == pytest.approx(2**-10) and each.held_gib == 0 for each in both)
    assert (tmp_path / "read").read_bytes() == 3 * WEIGHTS
    assert place.status()["cache_gib"] == pytest.approx(2 * 2**-10)
