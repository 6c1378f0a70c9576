"""The commands that talk to a daemon, each against a real one over its socket and over HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread, Timer

import pytest
from click.testing import CliRunner, Result

import costopt.cli.logs as logs_command
from costopt.agent.node_commands import ExecRunner
from costopt.cli.connection import connect
from costopt.cli.main import cli
from costopt.client.client import ApiError, DaemonUnreachableError
from costopt.daemon.reader import TenantReader
from costopt.daemon.shared_state import TickSnapshot
from costopt.domain.control import DesiredState, Mode, ProposalState, Scope
from costopt.protocol.node_commands import CommandBox, CommandResult
from tests.support.daemon_api import JOB, POOL, Served, served
from tests.support.errors import failure


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as each:
        yield each


def local(daemon: Served, *arguments: str) -> Result:
    env = {"COSTOPT_SERVER": f"unix:{daemon.socket_path}", "COSTOPT_TOKEN": ""}
    return CliRunner().invoke(cli, arguments, env=env)


def remote(daemon: Served, token: str | None, *arguments: str) -> Result:
    env = {"COSTOPT_SERVER": daemon.url, "COSTOPT_TOKEN": token or ""}
    return CliRunner().invoke(cli, arguments, env=env)


def api_status(result: Result) -> int:
    """The HTTP status with which the daemon refused a command."""
    error = failure(result)
    assert isinstance(error, ApiError)
    return error.status


def job_file(folder: Path, name: str = "new") -> Path:
    file = folder / f"{name}.yaml"
    file.write_text(JOB.format(name=name), encoding="utf-8")
    return file


def test_a_job_is_submitted_with_its_folder_and_its_policys_text(
    daemon: Served, tmp_path: Path
) -> None:
    policy = tmp_path / "mine.yaml"
    policy.write_text("kind: policy\nversion: 1\nname: mine\nobjective: {usd: 1}\n")
    file = job_file(tmp_path)
    done = local(daemon, "submit", str(file), "-p", str(policy), "--priority", "5")
    assert (done.exit_code, done.stdout) == (0, "new\n"), done.stderr
    assert "observe" in done.stderr
    known = daemon.registry.submission("new")
    assert known is not None
    assert (known.workdir, known.priority) == (str(tmp_path), 5)
    assert known.job_document == file.read_text()
    assert known.policy_document == policy.read_text()


def test_who_submits_while_launches_are_halted_is_reported(daemon: Served, tmp_path: Path) -> None:
    daemon.service.halt("keys are stolen", "ann")
    done = local(daemon, "submit", str(job_file(tmp_path)), "--anyway")
    assert (done.exit_code, done.stdout) == (0, "new\n"), done.stderr
    assert "ann" in done.stderr
    assert "keys are stolen" in done.stderr


def test_a_job_that_no_plan_ends_in_time_is_refused_as_by_plan_or_taken_anyway(
    daemon: Served, tmp_path: Path
) -> None:
    file = job_file(tmp_path)
    file.write_text(file.read_text().replace("amount: 100", "amount: 1e9"))
    planned = CliRunner().invoke(cli, ["plan", str(file)])
    refused = local(daemon, "submit", str(file))
    assert refused.exit_code == planned.exit_code == 3
    assert failure(planned).code == "infeasible"
    by_daemon = failure(refused)
    assert isinstance(by_daemon, ApiError)
    assert by_daemon.status == 409
    assert by_daemon.hint == failure(planned).hint
    assert by_daemon.message.partition(" by ")[0] == failure(planned).message.partition(" by ")[0]
    assert ": deadline: " in by_daemon.message
    assert daemon.registry.submission("new") is None
    taken = local(daemon, "submit", str(file), "--anyway")
    assert (taken.exit_code, taken.stdout) == (0, "new\n")
    assert "note: " + by_daemon.message.partition(" by ")[0] in taken.stderr


def test_a_job_that_can_end_in_time_is_reported_when(daemon: Served, tmp_path: Path) -> None:
    done = local(daemon, "submit", str(job_file(tmp_path)))
    assert re.search(r"note: .* \d{4}-\d{2}-\d{2} \d{2}:\d{2}", done.stderr)
    daemon.board.publish(TickSnapshot(datetime.now(UTC)), 0.0)
    done = local(daemon, "submit", str(job_file(tmp_path, "other")))
    assert "note: " in done.stderr
    assert not re.search(r"note: .* \d{4}-\d{2}-\d{2} \d{2}:\d{2}", done.stderr)


def test_a_wrong_job_is_refused_here_with_its_own_name(daemon: Served, tmp_path: Path) -> None:
    file = job_file(tmp_path)
    file.write_text(file.read_text().replace("deadline", "deadlin"))
    done = local(daemon, "submit", str(file))
    assert done.exit_code == 2
    assert f"{file}:5:1: deadlin: " in done.stderr
    assert local(daemon, "submit", str(job_file(tmp_path)), "-p", "nope").exit_code == 2
    taken = local(daemon, "submit", str(job_file(tmp_path, "one")))
    assert taken.exit_code == 2
    assert (api_status(taken), "'one'" in taken.stderr) == (409, True)


def test_jobs_are_listed_and_shown(daemon: Served) -> None:
    rows = json.loads(local(daemon, "status", "-o", "json").stdout)
    assert rows["schema"] == "costopt.status/1"
    assert [(row["job"], row["slack_s"]) for row in rows["rows"]] == [
        ("one", 3600.0),
        ("two", None),
    ]
    for words, names in (
        (
            ("--state", "open", "--tenant", "default", "--since", "2026-01-01T00:00Z"),
            ["one", "two"],
        ),
        (("--state", "ended"), []),
        (("--name", "tw"), ["two"]),
        (("--since", "2200-01-01T00:00Z"), []),
    ):
        listed = json.loads(local(daemon, "status", *words, "-o", "json").stdout)
        assert [row["job"] for row in listed["rows"]] == names
    assert local(daemon, "status", "--state", "dreaming").exit_code == 2
    reported = local(daemon, "status", "one").stdout
    assert "one-d1" in reported
    assert "i-1" in reported
    shown = json.loads(local(daemon, "status", "one", "-o", "json").stdout)
    assert shown["decision"]["reason"] == "cheapest"
    assert [row["node_id"] for row in shown["nodes"]] == ["i-1"]
    assert [row["job"] for row in shown["rows"]] == ["one"]
    assert local(daemon, "status", "two").exit_code == 0, "a job without any event"
    missing = local(daemon, "status", "nope")
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert (api_status(missing), "'nope'" in missing.stderr) == (404, True)


def test_a_job_is_steered(daemon: Served) -> None:
    for verb, intent in (
        ("pause", DesiredState.PAUSED),
        ("resume", DesiredState.RUN),
        ("cancel", DesiredState.CANCELLED),
    ):
        done = local(daemon, verb, "one")
        assert (done.exit_code, done.stdout) == (0, ""), done.stderr
        assert TenantReader(daemon.service).job("one").submission.desired_state is intent
    assert local(daemon, "reprioritize", "two", "-7").exit_code == 0
    assert TenantReader(daemon.service).job("two").submission.priority == -7
    assert local(daemon, "resume", "one").exit_code == 2


def test_proposals_are_listed_approved_and_rejected(daemon: Served) -> None:
    (row,) = json.loads(local(daemon, "daemon", "approve", "-o", "json").stdout)["rows"]
    assert (row["id"], row["kind"], row["state"]) == ("p-1", "launch", "open")
    (known,) = TenantReader(daemon.service).proposals()
    daemon.registry.propose(replace(known, id="p-2"))
    assert local(daemon, "daemon", "approve", "p-1").exit_code == 0
    assert local(daemon, "daemon", "approve", "--reject", "p-2").exit_code == 0
    states = [each.state for each in TenantReader(daemon.service).proposals()]
    assert states == [ProposalState.APPROVED, ProposalState.REJECTED]
    assert local(daemon, "daemon", "approve", "p-9").exit_code == 2


def test_launches_are_halted_and_the_mode_is_set(daemon: Served) -> None:
    assert local(daemon, "daemon", "halt", "prices", "are", "odd").exit_code == 0
    halt = daemon.service.registry.halted()
    assert halt is not None
    assert halt.reason == "prices are odd"
    assert local(daemon, "daemon", "unhalt").exit_code == 0
    assert daemon.service.registry.halted() is None
    assert local(daemon, "daemon", "mode").stdout == "observe\n"
    assert local(daemon, "daemon", "mode", "recommend").exit_code == 0
    assert daemon.service.mode() is Mode.RECOMMEND


def test_a_token_is_made_used_listed_and_revoked(daemon: Served, tmp_path: Path) -> None:
    token = local(daemon, "daemon", "token", "add", "ci", "--scope", "submit").stdout.strip()
    assert remote(daemon, token, "status").exit_code == 0
    file = tmp_path / "token"
    file.write_text(f"{token}\n")
    done = remote(daemon, None, "pause", "two", "--token-file", str(file))
    assert done.exit_code == 0, done.stderr
    refused = remote(daemon, token, "daemon", "halt")
    assert (api_status(refused), "admin" in refused.stderr) == (403, True)
    (row,) = json.loads(local(daemon, "daemon", "token", "list", "-o", "json").stdout)["rows"]
    assert (row["name"], row["scopes"]) == ("ci", ["submit"])
    assert local(daemon, "daemon", "token", "revoke", "ci").exit_code == 0
    gone = remote(daemon, token, "status")
    assert api_status(gone) == 401
    assert token not in gone.stderr + gone.stdout


def test_a_token_of_a_tenant_lists_its_jobs_alone(daemon: Served) -> None:
    daemon.submit("mine", tenant="blue")
    made = local(daemon, "daemon", "token", "add", "ci", "--scope", "submit", "--tenant", "blue")
    assert all(word in made.stderr for word in ("ci", "submit", "blue"))
    token = made.stdout.strip()
    assert (
        json.loads(remote(daemon, token, "status", "-o", "json").stdout)["rows"][0]["job"] == "mine"
    )
    refused = remote(daemon, token, "status", "one")
    assert (api_status(refused), "'one'" in refused.stderr) == (404, True)
    assert remote(daemon, token, "pause", "mine").exit_code == 0


def test_a_log_is_printed(daemon: Served) -> None:
    assert local(daemon, "logs", "one").stdout == "step 1\nstep 2\n"
    assert local(daemon, "logs", "one", "--node", "i-1").stdout == "step 1\nstep 2\n"
    assert local(daemon, "logs", "one", "--node", "i-9").exit_code == 2
    assert local(daemon, "logs", "one", "--node", "../x").exit_code == 2


def test_a_log_is_followed_until_the_job_is_over(
    daemon: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs_command, "PAUSE_S", 0.02)

    def go_on() -> None:
        daemon.logs.texts["one", "i-1"] += "step 3\n"
        seen = daemon.board.snapshot
        daemon.board.publish(replace(seen, nodes=(), nodes_of={}), 0.01)
        daemon.service.cancel("one", "test")

    later = Timer(0.3, go_on)
    later.start()
    done = local(daemon, "logs", "one", "--follow")
    later.join()
    assert done.exit_code == 0, done.stderr
    assert done.stdout == "step 1\nstep 2\nstep 3\n"
    assert {"one", "cancelled"} <= set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("server", ["unix:/nowhere/daemon.sock", "http://127.0.0.1:1"])
def test_a_daemon_that_is_not_there_is_named(server: str) -> None:
    done = CliRunner().invoke(cli, ["status", "--server", server])
    assert isinstance(failure(done), DaemonUnreachableError)
    assert server in failure(done).message
    assert done.stderr.count("error: ") == 1


@pytest.mark.parametrize(
    ("server", "code"),
    [
        ("ftp://x", "invalid_address"),
        ("http://x/deep/path", "invalid_address"),
        ("http://user:secret@x", "password_in_address"),
        ("http://user:secret@x:99999", "password_in_address"),
        ("http://x:99999", "invalid_address"),
        ("unix:", "invalid_address"),
    ],
)
def test_a_servers_address_is_refused_without_its_secret(server: str, code: str) -> None:
    done = CliRunner().invoke(cli, ["status", "--server", server])
    assert (done.exit_code, failure(done).code) == (2, code)
    assert "secret" not in done.stderr


@pytest.mark.parametrize(
    ("server", "warned"),
    [
        ("http://costopt.example.com:8420", True),
        ("https://costopt.example.com", False),
        ("http://127.0.0.1:8420", False),
        ("http://[::1]:8420", False),
        ("http://localhost", False),
        ("unix:/x", False),
    ],
)
def test_a_token_that_would_cross_a_network_unencrypted_is_warned_of(
    server: str, warned: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COSTOPT_TOKEN", "costopt_a_b")
    connect(server, None)
    assert ("unencrypted" in capsys.readouterr().err) is warned


@pytest.mark.parametrize("text", ["", "two words\n", "é"])
def test_a_file_without_a_token_is_refused(daemon: Served, tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    done = remote(daemon, None, "status", "--token-file", str(file))
    assert (done.exit_code, failure(done).code) == (2, "no_token")


def test_the_server_may_stand_in_the_config_file(daemon: Served, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    token_file = tmp_path / "token"
    token_file.write_text(daemon.token(Scope.READ))
    config.write_text(f'server = "{daemon.url}"\ntoken_file = "{token_file}"\n')
    done = CliRunner().invoke(cli, ["--config", str(config), "daemon", "mode"])
    assert (done.exit_code, done.stdout) == (0, "observe\n"), done.stderr


def test_a_decision_is_explained_by_its_id(daemon: Served) -> None:
    reported = local(daemon, "explain", "one-d1", "-o", "json")
    assert reported.exit_code == 0, reported.stderr
    answer = json.loads(reported.stdout)
    assert (answer["decision"], answer["rule"]) == ("one-d1", "guard budget")
    assert [row["choice"] for row in answer["rows"]] == ["wait", f"1 × {POOL}"]
    assert local(daemon, "explain", "one-d2").exit_code == 2
    by_id = local(daemon, "explain", "one-d1").stdout
    assert local(daemon, "explain", "one", "last").stdout == by_id


def test_a_job_whose_name_looks_like_a_decision_is_a_job(daemon: Served) -> None:
    daemon.submit("one-d7")
    reported = local(daemon, "explain", "one-d7", "-o", "json")
    assert json.loads(reported.stdout)["job"] == "one-d7"


def test_what_the_daemon_needs_is_named_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("costopt.cli.daemon.REQUIRED_MODULES", ("fastapi", "not_there_at_all"))
    done = CliRunner().invoke(cli, ["daemon", "--market", "m.parquet"])
    assert done.exit_code == 1
    assert failure(done).code == "missing_module"
    assert "costopt-spot[daemon]" in done.stderr


def sbatch_script(folder: Path, *options: str) -> Path:
    path = folder / "tune.sh"
    lines = "".join(f"#SBATCH {each}\n" for each in options)
    path.write_text(f"#!/bin/bash\n{lines}python train.py\n", encoding="utf-8")
    return path


def names(daemon: Served) -> list[str]:
    return [status.submission.name for status in TenantReader(daemon.service).jobs()]


def test_an_sbatch_script_is_shown_and_submitted_only_with_apply(
    daemon: Served, tmp_path: Path
) -> None:
    options = ("--gres=gpu:v100:1 -t 60", "--deadline=now+30days", "--partition=gpu")
    path = sbatch_script(tmp_path, *options)
    shown = local(daemon, "submit", "--from-sbatch", str(path))
    assert shown.exit_code == 0
    assert "tune.sh:4" in shown.stderr
    assert "tune" not in names(daemon)
    taken = local(daemon, "submit", "--from-sbatch", str(path), "--apply", "--anyway")
    assert taken.exit_code == 0, taken.stderr
    status = TenantReader(daemon.service).job("tune")
    assert status.submission.job_document == shown.stdout
    assert status.submission.workdir == str(tmp_path)


def test_a_script_without_a_deadline_is_refused(daemon: Served, tmp_path: Path) -> None:
    path = sbatch_script(tmp_path, "--gres=gpu:v100:1 -t 60")
    for more in ((), ("--apply",)):
        refused = local(daemon, "submit", "--from-sbatch", str(path), *more)
        assert (refused.exit_code, refused.stdout) == (2, "")
    assert "tune" not in names(daemon)


@pytest.mark.process
def test_exec_runs_a_command_on_a_node_and_ends_as_it_does(daemon: Served, tmp_path: Path) -> None:
    box = CommandBox(daemon.logs.store, "one")
    runner = ExecRunner(box, "i-1", lambda: str(tmp_path), poll_s=0.0)
    ended = Event()

    def serve() -> None:
        while not ended.wait(0.05):
            runner.poll()

    thread = Thread(target=serve)
    thread.start()
    try:
        result = local(daemon, "exec", "one", "--", "sh", "-c", "echo -n out; exit 5")
        missing = local(daemon, "exec", "two", "--", "true")
    finally:
        ended.set()
        thread.join()
    assert (result.exit_code, result.stdout) == (5, "out")
    assert api_status(missing) == 409


def test_what_a_node_answers_does_not_steer_the_terminal(
    daemon: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(self: CommandBox, node_id: str, command_id: str) -> CommandResult:
        return CommandResult(command_id, 0, "\x1b]0;owned\x07a\x1b[31mb\n", message="\x1b[2J")

    monkeypatch.setattr(CommandBox, "result", answer)
    result = local(daemon, "exec", "one", "--", "true")
    assert result.exit_code == 0
    assert result.stdout == "ab\n"
    assert "\x1b" not in result.stderr
