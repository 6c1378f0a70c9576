"""An array's tasks under agents, whose commands are processes."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from costopt.agent import cached_data
from costopt.domain.array import TaskArray
from costopt.protocol.messages import CacheSource, Gang, NodeActivity, SecretName
from costopt.protocol.tasks import TaskBoard, TaskClaim, TaskResult
from costopt.store.folder import FileStore
from tests.support.agent_fleet import AgentFleet
from tests.support.process_state import is_running

pytestmark = pytest.mark.process

SCRIPT = """\
import json, os, pathlib, sys, time
task, attempt = os.environ["COSTOPT_TASK"], int(os.environ["COSTOPT_TASK_ATTEMPT"])
here, how = pathlib.Path.cwd(), sys.argv[1]
(here / f"{task}-{attempt}.pid").write_text(str(os.getpid()))
print(f"task {task} with {how} and {os.environ['how']} on {os.environ['COSTOPT_NODE']}", flush=True)
while (here / f"hold-{task}").exists():
    time.sleep(0.01)
if how == "fails" or (how == "retried" and attempt < 3):
    raise ValueError(f"attempt {attempt}")
figures = {"score": int(task) / 2, "gpus": os.environ.get("CUDA_VISIBLE_DEVICES")}
value = "[1]" if how == "garbled" else json.dumps(figures)
if how != "silent":
    pathlib.Path(os.environ["COSTOPT_RESULT_FILE"]).write_text(value)
"""


class Tasks(AgentFleet):
    """Nodes that take tasks, each of which behaves as its parameter says."""

    def __init__(self, folder: Path, *hows: str) -> None:
        super().__init__(folder, SCRIPT, peer_silent_s=1.0)
        self.board = TaskBoard(self.mailbox.store, "j")
        self.tasks = len(hows)
        self.board.publish(TaskArray(self.tasks, names=("how",), rows=tuple((h,) for h in hows)))

    def post(
        self,
        generation: int,
        *members: str,
        slots: int = 1,
        retries: int = 2,
        timeout_s: float | None = None,
        cache: tuple[CacheSource, ...] = (),
        setup: tuple[str, ...] = (),
        secrets: tuple[SecretName, ...] = (),
    ) -> None:
        """Tell these nodes to take tasks."""
        command = (sys.executable, "trainer.py", "{how}")
        self.mailbox.post_gang(
            Gang(
                "j", generation, members, command, str(self.folder), time.time(),
                task_slots=(slots,) * len(members), task_retries=retries,
                task_timeout_s=timeout_s, cache=cache, setup=setup, secrets=secrets,
            )
        )  # fmt: skip

    def hold(self, *tasks: int) -> None:
        """Let these tasks run until they are let go."""
        for task in tasks:
            (self.folder / f"hold-{task}").touch()

    def let_go(self, *tasks: int) -> None:
        for task in tasks:
            (self.folder / f"hold-{task}").unlink()

    def pid(self, task: int, attempt: int = 1) -> int:
        """The process of an attempt, once it runs."""
        path = self.folder / f"{task}-{attempt}.pid"
        self.until(lambda: path.exists() and bool(path.read_text()), f"attempt of task {task}")
        return int(path.read_text())

    def done(self) -> set[int]:
        return {task for task, state in self.board.states().items() if state.done}

    def until_done(self, *tasks: int) -> None:
        self.until(lambda: self.done() >= set(tasks), f"result of {tasks}")


def test_every_task_has_its_parameters_log_and_result(tmp_path: Path) -> None:
    with closing(Tasks(tmp_path, *["fine"] * 5)) as fleet:
        fleet.post(1, "a", "b")
        fleet.launch("a")
        fleet.launch("b")
        fleet.until_done(*range(5))
        for task in range(5):
            result = fleet.board.result(task)
            assert result is not None
            assert result.figures == {"score": task / 2}
            ((attempt, log),) = fleet.board.logs(task)
            assert (attempt, log) == (1, f"task {task} with fine and fine on {result.node_id}\n")
        fleet.until(lambda: fleet.beat("a").state is NodeActivity.IDLE, "idle node")
        assert not list((tmp_path / "node-a").glob("task-*"))


def test_a_task_that_runs_too_long_is_killed_and_counts_as_failed(tmp_path: Path) -> None:
    with closing(Tasks(tmp_path, "fine", "fine")) as fleet:
        fleet.hold(0)
        fleet.post(1, "a", slots=2, retries=0)
        fleet.launch("a")
        hung = fleet.pid(0)
        fleet.until_done(1)
        fleet.post(2, "a", slots=2, retries=0, timeout_s=0.1)
        fleet.until(lambda: fleet.board.failure(0, 1) is not None, "end of the task that hangs")
        fleet.until(lambda: not is_running(hung), "end of its process")
        failure = fleet.board.failure(0, 1)
        assert failure is not None
        assert failure.exit_code == 124
        assert "array.timeout" in failure.message
        (log,) = fleet.board.logs(0)
        assert log[1].startswith("task 0 with fine")


def test_tasks_wait_for_the_cache_and_fail_while_it_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached_data, "RETRY_S", 0.01)
    cache = ((str(tmp_path / "bucket"), "weights", "", False),)
    with closing(Tasks(tmp_path, "fine", "fine")) as fleet:
        fleet.post(1, "a", cache=cache, retries=100)
        fleet.launch("a")
        fleet.until(lambda: fleet.board.failure(0, 1) is not None, "a failure")
        assert "holds no objects" in getattr(fleet.board.failure(0, 1), "message", "")
        assert not (tmp_path / "0-1.pid").exists()
        FileStore(tmp_path / "bucket").put("x", b"weights")
        fleet.until_done(0, 1)


def test_tasks_wait_for_the_setup_and_fail_where_a_secret_cannot_be_read(tmp_path: Path) -> None:
    with closing(Tasks(tmp_path, "fine", "fine")) as fleet:
        fleet.post(1, "a", setup=("echo run >> setups",))
        fleet.launch("a")
        fleet.until_done(0, 1)
        assert (tmp_path / "setups").read_text() == "run\n"
    (tmp_path / "other").mkdir()
    with closing(Tasks(tmp_path / "other", "fine")) as fleet:
        fleet.post(1, "a", secrets=(("TOKEN", "aws", "prod/token", False),), retries=0)
        fleet.launch("a")
        fleet.until(lambda: fleet.board.failure(0, 1) is not None, "failure")
        failure = fleet.board.failure(0, 1)
        assert failure is not None
        assert "secret TOKEN" in failure.message


def test_failures_are_retried_as_often_as_allowed(tmp_path: Path) -> None:
    with closing(Tasks(tmp_path, "fails", "retried", "garbled", "silent")) as fleet:
        fleet.post(1, "a", slots=2)
        fleet.launch("a")
        fleet.until_done(1, 3)
        fleet.until(
            lambda: {0, 2} <= {t for t, s in fleet.board.states().items() if not s.is_open(2)},
            "end of the failing tasks",
        )
        states = fleet.board.states()
        assert {task: (s.attempts, len(s.failed), s.done) for task, s in states.items()} == {
            0: (3, 3, False), 1: (3, 2, True), 2: (3, 3, False), 3: (1, 0, True),
        }  # fmt: skip
        failure, silent, retried = (
            fleet.board.failure(0, 3),
            fleet.board.result(3),
            fleet.board.result(1),
        )
        assert failure is not None
        assert (failure.exit_code, "ValueError: attempt 3" in failure.message) == (1, True)
        assert silent is not None
        assert silent.value == "{}"
        assert retried is not None
        assert '"gpus": "' in retried.value


def test_a_silent_node_s_task_is_started_elsewhere_and_its_late_result_refused(
    tmp_path: Path,
) -> None:
    with closing(Tasks(tmp_path, "fine")) as fleet:
        late = TaskClaim("gone", 1, time.time())
        assert fleet.board.claim(0, 1, late)
        fleet.post(2, "a")
        fleet.launch("a")
        fleet.until_done(0)
        first = fleet.board.result(0)
        assert first is not None
        assert (first.node_id, first.attempt) == ("a", 2)
        assert not fleet.board.commit(0, TaskResult("gone", 1, time.time(), 1.0, "{}"))
        assert fleet.board.result(0) == first


def test_a_killed_task_is_started_again_and_counts_as_failed(tmp_path: Path) -> None:
    with closing(Tasks(tmp_path, "fine")) as fleet:
        fleet.hold(0)
        fleet.post(1, "a")
        fleet.launch("a")
        os.kill(fleet.pid(0), signal.SIGKILL)
        fleet.pid(0, attempt=2)
        fleet.let_go(0)
        fleet.until_done(0)
        assert fleet.board.states()[0].failed == {1}


def test_an_agent_that_begins_again_takes_its_own_lost_task_at_once(tmp_path: Path) -> None:
    with closing(Tasks(tmp_path, "fine")) as fleet:
        fleet.board.claim(0, 1, TaskClaim("a", 1, time.time()))
        fleet.post(1, "a")
        fleet.launch("a", peer_silent_s=1e6)
        fleet.until_done(0)
        result = fleet.board.result(0)
        assert result is not None
        assert result.attempt == 2


def test_a_drained_node_ends_its_task_while_another_takes_the_rest(tmp_path: Path) -> None:
    with closing(Tasks(tmp_path, *["fine"] * 4)) as fleet:
        fleet.hold(0)
        fleet.post(1, "a")
        fleet.launch("a")
        fleet.pid(0)
        fleet.mailbox.request_drain("a")
        fleet.until(lambda: fleet.beat("a").state is NodeActivity.STOPPING, "drain")
        fleet.post(2, "b")
        fleet.launch("b")
        fleet.until_done(1, 2, 3)
        fleet.let_go(0)
        fleet.until_done(0)
        fleet.until(lambda: fleet.beat("a").state is NodeActivity.STOPPED, "drained node")
        found = [fleet.board.result(task) for task in range(4)]
        assert [r.node_id for r in found if r is not None] == ["a", "b", "b", "b"]
        assert all(state.attempts == 1 for state in fleet.board.states().values())


def test_a_clock_that_is_set_ends_no_task_before_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Tasks(tmp_path, "fine", "fine")) as fleet:
        fleet.hold(0)
        fleet.post(1, "a", slots=2, retries=0, timeout_s=3600.0)
        fleet.launch("a")
        fleet.pid(0)
        true = time.time
        monkeypatch.setattr(time, "time", lambda: true() + 86_400.0)
        fleet.until_done(1)
        fleet.until(lambda: fleet.beat("a").at > true() + 80_000, "a heartbeat by the new clock")
        fleet.let_go(0)
        fleet.until_done(0)
        result = fleet.board.result(0)
        assert result is not None
        assert result.took_s < 3600.0
