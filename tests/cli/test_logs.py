"""costopt logs of a run on an account's clouds, which no daemon controls."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

import costopt.cli.logs as logs_command
from costopt.cli.main import cli
from costopt.controller.state_dir import LEDGER
from costopt.domain.events import Event, GangFormed, NodeLaunched
from costopt.ledger.sql_ledger import open_sqlite_ledger
from costopt.protocol.node_logs import NodeLog
from costopt.store.folder import FileStore
from tests.support.errors import failure
from tests.support.sample_run import sample_events

JOB = "train"


@dataclass(frozen=True)
class Run:
    """A folder with a run's ledger and the store of its account."""

    folder: Path

    def logs(self, *options: str) -> Result:
        """What the command says."""
        command = ["logs", JOB, "--account", str(self.folder / "account.yaml")]
        return CliRunner().invoke(cli, [*command, "--state-dir", str(self.folder), *options])

    def keep(self, node_id: str, text: str) -> None:
        """What the node's agent sends."""
        log = NodeLog(FileStore(self.folder / "store"), JOB, node_id)
        end = log.end()
        log.append(end, text.encode(), 1, end.until + len(text))

    def tell(self, *events: Event) -> None:
        """What the controller writes down."""
        with open_sqlite_ledger(self.folder / LEDGER) as ledger:
            for event in events:
                ledger.append(event)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path)
    text = f"kind: account\nversion: 1\nowner: me\nstore: {tmp_path / 'store'}\n"
    (tmp_path / "account.yaml").write_text(text)
    return run


def test_the_log_of_a_node_that_is_gone_is_printed(run: Run) -> None:
    events = sample_events(JOB)
    run.tell(*events)
    had = [event.node_id for event in events if isinstance(event, NodeLaunched)]
    run.keep(had[0], "step 1\n")
    run.keep(had[0], "step 2\n")
    assert run.logs("--node", had[0]).stdout == "step 1\nstep 2\n"
    unnamed = run.logs()
    assert unnamed.stdout == ""
    gangs = [event.node_ids for event in events if isinstance(event, GangFormed)]
    assert gangs[-1][0] in unnamed.stderr
    wrong = run.logs("--node", "i-0")
    assert (wrong.exit_code, failure(wrong).code) == (2, "unknown_node")


def test_escape_sequences_are_left_out(run: Run) -> None:
    events = sample_events(JOB)
    run.tell(*events)
    node = next(event.node_id for event in events if isinstance(event, NodeLaunched))
    run.keep(node, "\x1b[31mstep 1\x1b[0m\r\n\x1b]0;owned")
    run.keep(node, "\x07step 2\n")
    for options in (("--node", node), ("--node", node, "--follow")):
        assert run.logs(*options).stdout == "step 1\nstep 2\n"


def test_an_account_without_a_store_is_refused(run: Run) -> None:
    run.tell(*sample_events(JOB))
    (run.folder / "account.yaml").write_text("kind: account\nversion: 1\nowner: me\n")
    refused = run.logs()
    assert (refused.exit_code, failure(refused).code) == (2, "no_store")


def test_a_run_is_followed_from_node_to_node_to_its_end(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = sample_events(JOB)
    gangs = [n for n, event in enumerate(events) if isinstance(event, GangFormed)]
    run.tell(*events[: gangs[0] + 1])
    run.keep("i-0a1", "step 1\n")

    def move() -> None:
        run.keep("i-0a1", "step 2\n")
        run.keep("i-0b1", "step 3\n")
        run.tell(*events[gangs[0] + 1 : gangs[1] + 1])

    def finish() -> None:
        run.keep("i-0b1", "step 4\n")
        run.tell(*events[gangs[1] + 1 :])

    happens = iter([move, finish])
    pausing = SimpleNamespace(sleep=lambda _: next(happens)())
    monkeypatch.setattr(logs_command, "time", pausing)
    done = run.logs("--follow")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == "step 1\nstep 2\nstep 3\nstep 4\n"
    assert done.stderr.splitlines() == ["==> i-0a1", "==> i-0b1", f"{JOB} is finished"]
