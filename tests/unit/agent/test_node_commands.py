"""Commands that an operator has a node run: their output, their end, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from costopt.agent.node_commands import ExecRunner
from costopt.protocol.node_commands import (
    MAX_OUTPUT_BYTES,
    CommandBox,
    CommandResult,
    ExecRequest,
)
from costopt.store.folder import FileStore
from tests.support.live_run import wait_until

pytestmark = pytest.mark.process
Run = Callable[..., CommandResult]


@pytest.fixture
def box(tmp_path: Path) -> CommandBox:
    return CommandBox(FileStore(tmp_path / "store"), "job")


@pytest.fixture
def runner(box: CommandBox, tmp_path: Path) -> ExecRunner:
    (tmp_path / "work").mkdir()
    return ExecRunner(box, "n-1", lambda: str(tmp_path / "work"), poll_s=0.0)


@pytest.fixture
def run(box: CommandBox, runner: ExecRunner) -> Run:
    def run(*command: str, timeout_s: float = 30.0) -> CommandResult:
        box.post("n-1", ExecRequest("c-1", command, timeout_s))

        def has_ended() -> bool:
            runner.poll()
            return box.result("n-1", "c-1") is not None

        wait_until(has_ended, "result")
        result = box.result("n-1", "c-1")
        assert result is not None
        return result

    return run


def test_a_command_runs_in_the_jobs_folder_and_its_output_is_reported(
    run: Run, tmp_path: Path
) -> None:
    result = run("sh", "-c", "pwd; echo wrong >&2; exit 3")
    assert (result.exit_code, result.output) == (3, f"{tmp_path / 'work'}\nwrong\n")
    assert not result.truncated


def test_a_command_runs_once(run: Run, runner: ExecRunner, tmp_path: Path) -> None:
    run("sh", "-c", "echo >> ran")
    for _ in range(5):
        runner.poll()
    assert (tmp_path / "work" / "ran").read_text() == "\n"


def test_a_restarted_agent_does_not_run_it_again(run: Run, box: CommandBox, tmp_path: Path) -> None:
    run("sh", "-c", "echo >> ran")
    again = ExecRunner(box, "n-1", lambda: str(tmp_path / "work"), poll_s=0.0)
    for _ in range(5):
        again.poll()
    assert (tmp_path / "work" / "ran").read_text() == "\n"


def test_a_command_that_takes_too_long_is_killed_with_what_it_started(run: Run) -> None:
    result = run("sh", "-c", "echo began; sleep 600 & sleep 600", timeout_s=0.5)
    assert (result.exit_code, result.output) == (None, "began\n")
    assert "killed" in result.message


def test_only_the_end_of_a_long_output_is_kept(run: Run) -> None:
    result = run("sh", "-c", f"yes | head -c {3 * MAX_OUTPUT_BYTES}; echo end")
    assert result.truncated
    assert len(result.output) == MAX_OUTPUT_BYTES
    assert result.output.endswith("end\n")


def test_output_cannot_steer_a_terminal(run: Run) -> None:
    result = run("printf", "\\033]0;owned\\007\\tx\\n")
    assert result.output == "\ufffd]0;owned\ufffd\tx\n"


def test_a_program_that_is_missing_is_reported(run: Run) -> None:
    result = run("no-such-program")
    assert result.exit_code != 0
    assert "no-such-program" in result.output + result.message


@pytest.mark.parametrize(
    "written",
    [
        b"", b"[]", b"{", b'{"id": "x"}', b'{"id": "x", "command": [], "timeout_s": 1}',
        b'{"id": "x", "command": [1], "timeout_s": 1}',
        b'{"id": "x", "command": ["true"], "timeout_s": -1}',
        json.dumps({"id": "x", "command": ["x" * 70_000], "timeout_s": 1}).encode()[:60_000],
    ],
)  # fmt: skip
def test_a_forged_command_is_ignored(
    written: bytes, box: CommandBox, runner: ExecRunner, tmp_path: Path
) -> None:
    FileStore(tmp_path / "store").put("jobs/job/nodes/n-1/exec.json", written)
    runner.poll()
    assert box.newest("n-1") is None
