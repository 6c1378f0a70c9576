"""A run command that fails, cannot be started, or knows nothing of costopt."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from costopt.domain import events as ev
from tests.support.live_run import Place, no_traceback

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


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


def test_the_job_file_says_how_many_failures_are_allowed(tmp_path: Path) -> None:
    place = Place(tmp_path, run=["false"], steps=10, extra="max_failures: 1").write()
    run = place.finish()
    assert run.returncode == 1
    assert "failed once" in run.stderr
    assert len(place.of(ev.GangFormed)) == 1
