"""Arrays on simulated nodes that are processes: whatever is killed, each task has one result."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from costopt.domain import events as ev
from costopt.domain.array import TaskOutcome
from costopt.domain.fleet import EndCause
from costopt.ledger.sql_ledger import open_sqlite_ledger
from tests.support.live_run import PATIENCE_S, UNINTERRUPTIBLE, Place, no_traceback, wait_until
from tests.support.node_folder import ROOT

pytestmark = [
    pytest.mark.exhaustive("jobs on simulated nodes"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
    pytest.mark.slow,
]

EXAMPLE = ROOT / "examples" / "sweep"
SPOT = "g4dn.xlarge/spot"
TAKEN_TWICE = UNINTERRUPTIBLE | {
    f"a/{SPOT}": ((0, 8, 0.16), (1500, 0, 0.16)),
    f"b/{SPOT}": ((0, None, None), (1200, 8, 0.16), (3600, 0, 0.16)),
    f"c/{SPOT}": ((0, None, None), (3300, 8, 0.16)),
}
"""The first spot capacity goes after 25 min, what replaces it after an hour."""
TASK = """\
import json, os, pathlib, time
task = int(os.environ["COSTOPT_TASK"])
time.sleep(0.6)
pathlib.Path(os.environ["COSTOPT_RESULT_FILE"]).write_text(json.dumps({"value": task * task}))
"""


@dataclass
class ArrayPlace(Place):
    """A folder with an array."""

    job: str = "tiny"
    tasks: int = 30
    array: str = ""

    def write_job(self) -> None:
        (self.folder / "task.py").write_text(TASK)
        (self.folder / "job.yaml").write_text(
            f"name: {self.job}\ndeadline: 5d\nstartup: 3m\nresources: {{gpu_models: [T4]}}\n"
            f"run: python task.py\narray: {{tasks: {self.tasks}, duration: 3m, parallel: 1..4, "
            f"retries: 8{self.array}}}\n"
        )

    def events(self) -> list[ev.Event]:
        path = self.state / "ledger.sqlite"
        if not path.exists():
            return []
        with open_sqlite_ledger(path, create=False) as ledger:
            return [recorded.event for recorded in ledger.events(self.job)]

    def results(self) -> dict[int, bytes]:
        """The results in the store, by task."""
        board = self.state / "jobs" / self.job / "store" / "jobs" / self.job / "tasks"
        return {int(path.parent.name): path.read_bytes() for path in board.glob("*/result")}

    def running_task(self) -> int:
        """The process of a task that runs, once there is one."""
        found: list[int] = []

        def is_there() -> bool:
            for pid in self.processes():
                with suppress(OSError):
                    if b"COSTOPT_TASK=" in Path(f"/proc/{pid}/environ").read_bytes():
                        found.append(pid)
            return bool(found)

        wait_until(is_there, "task that runs")
        return found[0]

    def ended(self) -> dict[int, ev.TaskEnded]:
        """Each task's end in the ledger; AssertionError for two."""
        events: list[ev.TaskEnded] = self.of(ev.TaskEnded)
        assert len({event.task for event in events}) == len(events)
        return {event.task: event for event in events}

    def check_results(self, tasks: int) -> None:
        """Every task is done once, and the ledger holds what the store holds."""
        ended, results = self.ended(), self.results()
        assert set(ended) == set(results) == set(range(tasks))
        for task, event in ended.items():
            stored = json.loads(results[task])
            assert event.outcome is TaskOutcome.DONE
            assert event.node_id == stored["node_id"]
            assert event.starts >= stored["attempt"]
        assert not self.processes()


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def has_results(place: ArrayPlace, count: int) -> bool:
    return len(place.results()) >= count


def parent(pid: int) -> int:
    """The agent of a task."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_the_example_is_interrupted_twice_and_does_each_task_once(tmp_path: Path) -> None:
    place = ArrayPlace(tmp_path, job="sweep", policy="cheapest")
    place.write(TAKEN_TWICE)
    for name in ("job.yaml", "evaluate.py", "sweep.csv"):
        shutil.copy(EXAMPLE / name, tmp_path)
    text = (tmp_path / "job.yaml").read_text()
    assert "deadline: 3h" in text
    patient = text.replace("deadline: 3h", "deadline: 60h").replace("1..8", "4..4")
    (tmp_path / "job.yaml").write_text(patient)
    done = place.finish()
    assert done.returncode == 0, done.stderr
    assert no_traceback(done.stderr)
    place.check_results(40)
    ends = place.of(ev.NodeEnded)
    taken = {event.pool for event in ends if event.cause is EndCause.INTERRUPTED}
    assert len(taken) == 2
    listed = place.call("status", "sweep", "--tasks", "--state-dir", "state", "--output", "json")
    rows = json.loads(listed.stdout)["rows"]
    parameters = {tuple(row["parameters"].values()) for row in rows}
    assert len(parameters) == 40
    assert all(0 < row["figures"]["loss"] < 1 for row in rows)
    table = place.call("status", "sweep", "--tasks", "--state-dir", "state").stdout
    assert len(table.splitlines()) > 40
    assert max(map(len, table.splitlines())) <= 100
    log = place.call("logs", "sweep", "--task", "7", "--state-dir", "state")
    assert "step 400: loss" in log.stdout
    report = place.call("report", "sweep", "--state-dir", "state", "-o", "html")
    assert report.returncode == 0, report.stderr
    assert "Tasks of sweep" in report.stdout


def test_no_kill_of_task_agent_or_controller_loses_or_doubles_a_result(tmp_path: Path) -> None:
    place = ArrayPlace(tmp_path)
    place.write()
    first: dict[int, bytes] = {}
    kills = ("controller", "agent", "task", "agent", "task", "controller") * 2
    process: subprocess.Popen[str] = place.start()
    try:
        for number, victim in enumerate(kills, 1):
            wait_until(partial(has_results, place, 2 * number), f"{2 * number} results")
            for task, data in place.results().items():
                assert first.setdefault(task, data) == data
            running = place.running_task()
            match victim:
                case "controller":
                    process.kill()
                    process.communicate()
                    process = place.start()
                case "agent":
                    with suppress(OSError):
                        kill(parent(running))
                case _:
                    kill(running)
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said
        assert no_traceback(said)
    finally:
        process.kill()
        process.communicate()
        left = place.processes()
        place.clear()
    assert not left
    results = place.results()
    assert {task: results[task] for task in first} == first
    place.check_results(place.tasks)
    assert sum(event.starts for event in place.ended().values()) > place.tasks


def test_too_many_failures_end_the_job_and_a_fixed_command_resumes_it(tmp_path: Path) -> None:
    place = ArrayPlace(tmp_path, tasks=8, array=", fail: {max: 1}")
    place.write()
    job = tmp_path / "job.yaml"
    job.write_text(job.read_text().replace("retries: 8", "retries: 1"))
    (tmp_path / "task.py").write_text(TASK.replace("time.sleep(0.6)", "assert task < 5"))
    broken = place.finish()
    assert broken.returncode == 1
    assert "AssertionError" in broken.stderr
    assert no_traceback(broken.stderr)
    failed = [e for e in place.ended().values() if e.outcome is TaskOutcome.FAILED]
    assert len(failed) >= 2
    assert all(event.starts == 2 for event in failed)
    before = place.results()
    (tmp_path / "task.py").write_text(TASK)
    fixed = place.finish()
    assert fixed.returncode == 0, fixed.stderr
    results = place.results()
    assert {task: results[task] for task in before} == before
    assert set(results) == set(range(8))


def test_a_result_that_is_good_enough_ends_the_array(tmp_path: Path) -> None:
    place = ArrayPlace(tmp_path, tasks=200, array=", stop: {metric: value, above: 9}")
    place.write()
    done = place.finish()
    assert done.returncode == 0, done.stderr
    (finished,) = place.of(ev.JobFinished)
    assert 1 <= finished.units < 200
    assert "stopped by task" in place.of(ev.TrainingStopped)[-1].reason
    assert not place.processes()
