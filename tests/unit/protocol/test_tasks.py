"""The board of tasks: one result for each, whatever nodes do at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from costopt.domain.array import TaskArray
from costopt.domain.errors import SpecError
from costopt.protocol.tasks import TaskBoard, TaskClaim, TaskFailure, TaskResult
from costopt.store.folder import FileStore

NODES = [f"n{number}" for number in range(8)]
ARRAY = TaskArray(4, names=("lr",), rows=(("1",), ("2",), ("3",), ("4",)))


@pytest.fixture
def board(tmp_path: Path) -> TaskBoard:
    return TaskBoard(FileStore(tmp_path), "sweep")


def claim(node: str) -> TaskClaim:
    return TaskClaim(node, 1, 10.0)


def result(node: str, value: str = "{}") -> TaskResult:
    return TaskResult(node, 1, 20.0, 5.0, value)


def test_of_many_claims_and_many_results_one_counts(board: TaskBoard) -> None:
    with ThreadPoolExecutor(len(NODES)) as pool:
        for task in range(10):
            taken = list(pool.map(lambda n, t=task: board.claim(t, 1, claim(n)), NODES))
            put = list(pool.map(lambda n, t=task: board.commit(t, result(n)), NODES))
            owner, winner = board.claimed(task, 1), board.result(task)
            assert (taken.count(True), put.count(True)) == (1, 1)
            assert owner == claim(NODES[taken.index(True)])
            assert winner == result(NODES[put.index(True)])


def test_a_task_is_open_until_it_has_a_result_or_failed_too_often(board: TaskBoard) -> None:
    failure = TaskFailure("n0", 1, 12.0, 2.0, "ValueError: no")
    for attempt in (1, 2):
        board.claim(0, attempt, claim("n0"))
        board.fail(0, attempt, failure)
    board.claim(1, 1, claim("n1"))
    board.claim(2, 1, claim("n1"))
    board.commit(2, result("n1"))
    states = board.states()
    assert [states[task].is_open(2) for task in range(3)] == [True, True, False]
    assert [states[task].is_open(1) for task in range(3)] == [False, True, False]
    assert [states[task].is_claimed for task in range(3)] == [False, True, False]
    assert board.failure(0, 2) == failure
    board.forget_failures()
    forgotten = board.states()[0]
    assert forgotten.is_open(0)
    assert (forgotten.attempts, forgotten.failed) == (2, set())


def test_tasks_that_have_begun_cannot_change(board: TaskBoard) -> None:
    board.publish(ARRAY)
    board.publish(replace(ARRAY, retries=9))
    known = board.array()
    assert known is not None
    assert known.parameters(2) == {"lr": "3"}
    with pytest.raises(SpecError):
        board.publish(replace(ARRAY, rows=(("9",), ("2",), ("3",), ("4",))))


def test_only_finite_numbers_of_a_result_are_figures() -> None:
    value = '{"loss": 0.5, "steps": 3, "ok": true, "name": "x", "bad": NaN, "huge": 1e999}'
    assert result("n", value).figures == {"loss": 0.5, "steps": 3.0}
    assert result("n", "[1]").figures == {}
    assert result("n", "not json").figures == {}


def test_what_a_job_s_own_code_writes_there_harms_nothing(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    board = TaskBoard(store, "sweep")
    for name in ("000000/result", "000001/0001.claim", "junk", "000002/x.claim", "0000003/result"):
        store.put(f"jobs/sweep/tasks/{name}", b"\xff{")
    assert sorted(board.states()) == [0, 1]
    assert board.result(0) is None
    assert board.claimed(1, 1) is None


def test_logs_are_read_attempt_by_attempt(board: TaskBoard) -> None:
    board.put_log(3, 2, b"second\n")
    board.put_log(3, 1, b"fir")
    board.put_log(3, 1, b"first\n")
    assert list(board.logs(3)) == [(1, "first\n"), (2, "second\n")]
    assert list(board.logs(4)) == []
