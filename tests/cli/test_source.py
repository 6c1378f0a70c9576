"""Commands that read runs answer alike from a folder's ledger and from a daemon, and find them."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from costopt.cli.main import cli
from costopt.controller.state_dir import LEDGER, SOCKET
from costopt.domain.control import Scope
from costopt.domain.events import NodeLaunched
from costopt.ledger.sql_ledger import open_sqlite_ledger
from tests.support.daemon_api import Served, served
from tests.support.errors import failure
from tests.support.sample_run import sample_events

JOB = "llama"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the ledger of a run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    (tmp_path / ".costopt").mkdir()
    (tmp_path / "account.yaml").write_text("kind: account\nversion: 1\nowner: me\n")
    with open_sqlite_ledger(tmp_path / ".costopt" / LEDGER) as ledger:
        ledger.append(*sample_events(JOB))
    return tmp_path


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Served]:
    """A daemon, which has the same run in its ledger."""
    (tmp_path / "served").mkdir()
    with served(tmp_path / "served", fill=False) as each:
        each.submit(JOB)
        each.ledger.append(*sample_events(JOB))
        yield each


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


@pytest.mark.parametrize(
    "command",
    [
        ("events",),
        ("events", JOB, "--after", "3"),
        ("explain", JOB),
        ("explain", JOB, "last"),
        ("checkpoints", "list", JOB),
        ("export", "bill", "--account", "account.yaml", "--month", "2026-03"),
    ],
    ids=" ".join,
)
def test_a_daemon_answers_as_its_ledger_does(
    folder: Path, daemon: Served, command: tuple[str, ...]
) -> None:
    server = ("--server", f"unix:{daemon.socket_path}", "-o", "json")
    results = [
        call(*command, *each) for each in (server, ("--state-dir", ".costopt", "-o", "json"))
    ]
    of_daemon, of_ledger = results
    assert of_daemon.exit_code == of_ledger.exit_code
    assert of_daemon.stdout == of_ledger.stdout
    assert bool(of_daemon.stdout) == (command[0] != "checkpoints")


@pytest.mark.parametrize(
    "command",
    [
        ("export", "focus", "--format", "csv", "--out"),
        ("export", "ghg", "--out"),
        ("export", "ghg", JOB, "--account", "account.yaml", "--out"),
    ],
    ids=" ".join,
)
def test_a_daemon_gives_the_same_files(
    folder: Path, daemon: Served, command: tuple[str, ...]
) -> None:
    for name, source in (
        ("a", ("--server", f"unix:{daemon.socket_path}")),
        ("b", ("--state-dir", ".costopt")),
    ):
        done = call(*command, f"{name}.csv", *source)
        assert done.exit_code == 0, done.stderr
    texts = [(folder / name).read_text() for name in ("a.csv", "b.csv")]
    first, second = (re.sub(r"\d\d:\d\d:\d\dZ UTC", "NOW", text) for text in texts)
    assert first == second


def test_a_tenant_exports_its_own_jobs_alone(folder: Path, daemon: Served) -> None:
    daemon.submit("other", tenant="blue")
    daemon.ledger.append(*sample_events("other"))
    token = folder / "token"
    token.write_text(daemon.token(Scope.READ, tenant="blue"))
    over_http = ("--server", daemon.url, "--token-file", "token", "--format", "csv")
    done = call("export", "focus", "--out", "own.csv", *over_http)
    assert done.exit_code == 0, done.stderr
    text = (folder / "own.csv").read_text()
    assert "other" in text
    assert JOB not in text
    assert call("events", *over_http[:4]).exit_code != 0
    assert call("report", JOB, *over_http[:4]).exit_code == 2


def test_without_an_option_the_ledger_is_read_and_named(folder: Path) -> None:
    done = call("explain", JOB)
    assert done.exit_code == 0
    assert "read from the ledger in .costopt" in done.stderr


@pytest.mark.parametrize("place", [f".costopt/{SOCKET}", f"runtime/costopt/{SOCKET}"])
def test_the_daemon_of_the_folder_or_the_user_is_found_and_named(
    folder: Path, daemon: Served, place: str
) -> None:
    path = folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(daemon.socket_path)
    done = call("explain", JOB)
    assert done.exit_code == 0
    assert (
        f"read from the daemon at unix:{place[:8]}" in " ".join(done.stderr.split())
        or str(path) in done.stderr
    )
    assert call("daemon", "mode").stdout == "observe\n"
    forced = call("explain", JOB, "--state-dir", ".costopt")
    assert (forced.exit_code, forced.stderr) == (0, "")


def test_a_socket_without_a_daemon_leads_to_the_ledger(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(folder / ".costopt" / SOCKET))
    done = call("explain", JOB)
    assert done.exit_code == 0
    assert "no daemon answers at unix:.costopt/daemon.sock" in done.stderr
    assert "the ledger in .costopt" in " ".join(done.stderr.split())
    assert call("explain", JOB, "--server", "unix:.costopt/daemon.sock").exit_code == 1
    assert call("pause", JOB).exit_code == 1


def test_flags_win_over_the_environment_and_name_one_source(
    folder: Path, daemon: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"unix:{daemon.socket_path}"
    both = call("explain", JOB, "--server", address, "--state-dir", ".costopt")
    assert both.exit_code == 2
    assert "name one" in both.stderr
    monkeypatch.setenv("COSTOPT_SERVER", "unix:nowhere")
    assert call("explain", JOB).exit_code == 1
    assert call("explain", JOB, "--state-dir", ".costopt").exit_code == 0
    monkeypatch.setenv("COSTOPT_SERVER", address)
    monkeypatch.setenv("COSTOPT_STATE_DIR", "nowhere")
    assert call("explain", JOB).exit_code == 0
    monkeypatch.delenv("COSTOPT_SERVER")
    assert call("explain", JOB).exit_code == 1
    (folder / "costopt.toml").write_text('state_dir = "nowhere"\n')
    monkeypatch.setenv("COSTOPT_SERVER", address)
    monkeypatch.delenv("COSTOPT_STATE_DIR")
    assert call("explain", JOB).exit_code == 0


def test_a_log_of_a_simulated_run_needs_no_daemon(folder: Path) -> None:
    cloud = folder / ".costopt" / "jobs" / JOB
    node = next(e.node_id for e in reversed(sample_events(JOB)) if isinstance(e, NodeLaunched))
    (cloud / "nodes" / node).mkdir(parents=True)
    (cloud / "nodes" / node / "trainer-1.log").write_text("step 1\n")
    refused = call("logs", JOB, "--node", node)
    assert (refused.exit_code, failure(refused).code) == (2, "no_store")
    clock = {"start_at": "2026-03-02T08:00:00+00:00", "speed": 1.0, "wall_s": time.time()}
    (cloud / "clock.json").write_text(json.dumps(clock))
    done = call("logs", JOB, "--node", node)
    assert (done.exit_code, done.stdout) == (0, "step 1\n"), done.stderr
