"""`costopt logs`: prints nodes' logs, from a daemon, or from the store and the ledger of a run."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import click

from costopt.cli.connection import connect, server_options
from costopt.cli.options import state_dir_option
from costopt.controller.node_logs import StoreLogs, logged_node
from costopt.controller.state_dir import check_known, job_now, open_state_ledger
from costopt.domain.errors import SpecError
from costopt.domain.terminal_text import TerminalTextFilter, terminal_text
from costopt.protocol.node_logs import LogChunk
from costopt.store import open_store
from costopt.store.address import is_key_part

if TYPE_CHECKING:
    from costopt.client.client import Answer, DaemonClient
    from costopt.domain.account import Account
    from costopt.ledger.fold_cache import FoldState


PAUSE_S = 1.0


@click.command()
@click.argument("job")
@click.option("--node", metavar="ID", help="A node of the job; default: rank 0 of its newest gang.")
@click.option(
    "--task",
    type=click.IntRange(min=0),
    metavar="N",
    help="A task of an array, from 0, in place of a node.",
)
@click.option("--follow", "-f", is_flag=True, help="Continue as the log grows, until it ends.")
@click.option(
    "--account",
    metavar="FILE",
    help="Use no daemon: read the logs of a costopt run from this account's store.",
)
@state_dir_option
@server_options
def logs(
    job: str,
    node: str | None,
    task: int | None,
    follow: bool,
    account: str | None,
    state_dir: Path,
    server: str,
    token_file: Path | None,
) -> None:
    """Print the log of a node, or of an array's task.

    Escape sequences, which a terminal would follow, are left out. Logs of terminated nodes are
    available too. With --follow and no --node, the log of rank 0 of
    each next gang follows that of the gang before, until the job is over. --task prints what all
    attempts of a task printed; of a simulated run in --state-dir, without a daemon.
    """

    from costopt.planning.request import load_account

    if task is not None:
        if follow or node is not None:
            raise click.UsageError("--task goes with neither --node nor --follow")
        text = _task_log(job, task, account, state_dir, server, token_file)
        click.echo(terminal_text(text), nl=False)
        return
    if account is None:
        reading = _LogReading(DaemonLogSource(connect(server, token_file), job), job)
    else:
        reading = _LogReading(RunLogSource(load_account(account), state_dir, job), job)
    if not follow:
        reading.print_all(node)
    elif node is not None:
        reading.follow(node)
    else:
        reading.follow_gangs()


def _task_log(
    job: str, task: int, account: str | None, state_dir: Path, server: str, token_file: Path | None
) -> str:
    from costopt.controller.node_logs import read_task_log
    from costopt.controller.simulated_site import STORE
    from costopt.planning.request import load_account

    simulated = state_dir / "jobs" / job / STORE
    if account is not None:
        uri = load_account(account).store
        if uri is None:
            raise _no_store()
        return read_task_log(open_store(uri), job, task).text
    if is_key_part(job) and simulated.is_dir():
        return read_task_log(open_store(str(simulated)), job, task).text
    answer = connect(server, token_file).get("jobs", job, "tasks", str(task), "log")
    return str(answer["text"])


def _no_store() -> SpecError:
    return SpecError(
        "the account file names no store, so its nodes keep no logs",
        hint="name the account file that the run was started with",
        code="no_store",
    )


class _LogReading:
    """Prints logs of one job."""

    def __init__(self, source: LogSource, job: str) -> None:
        self._source = source
        self._job = job
        self._printed = ""

    def print_all(self, node: str | None) -> None:
        """Print what there is now."""
        piece = self._source.read(node, 0)
        if not piece.text:
            self._note(f"the log of {piece.node_id} is empty so far")
        shown = TerminalTextFilter()
        while piece.text:
            click.echo(shown.feed(piece.text), nl=False)
            piece = self._source.read(piece.node_id, piece.next_byte)

    def follow(self, node: str) -> None:
        """Print until the node is gone and all of its log is printed."""
        after, gone = 0, False
        shown = TerminalTextFilter()
        while True:
            piece = self._source.read(node, after)
            click.echo(shown.feed(piece.text), nl=False)
            after = piece.next_byte
            if piece.text:
                continue
            if gone:
                return
            gone = node not in self._source.state().nodes
            if not gone:
                time.sleep(PAUSE_S)

    def follow_gangs(self) -> None:
        """Print the log of the first node of one gang after another, until the job is over."""
        seen: set[str] = set()
        while True:
            standing = self._source.state()
            first = self._source.read(None, 0).node_id if standing.nodes else ""
            if first in standing.nodes and first not in seen:
                seen.add(first)
                self._note(f"==> {first}")
                self.follow(first)
            elif standing.over:
                self._note(f"{self._job} is {standing.over}")
                return
            else:
                self._note(f"{self._job} has no new node: waiting for one")
                time.sleep(PAUSE_S)

    def _note(self, what: str) -> None:
        if what != self._printed:
            click.echo(what, err=True)
        self._printed = what


FINISHED = ("finished", "failed")


@dataclass(frozen=True, slots=True)
class JobLogState:
    """A job's living ``nodes``; ``over`` is how it ended, "" while it runs."""

    nodes: tuple[str, ...]
    over: str


class LogSource(Protocol):
    """Logs of one job's nodes. Methods raise CostoptError."""

    def read(self, node: str | None, after: int) -> LogChunk:
        """Return what follows byte ``after`` of the node's log; without a node, of the newest
        gang's first."""
        ...

    def state(self) -> JobLogState:
        """Return the job's current state."""
        ...


class DaemonLogSource:
    """Logs from a daemon."""

    def __init__(self, client: DaemonClient, job: str) -> None:
        self._client = client
        self._job = job

    def read(self, node: str | None, after: int) -> LogChunk:
        """Return it from the daemon."""
        answer = self._client.get("jobs", self._job, "logs", node=node, after=after)
        return LogChunk(
            self._job, answer["node_id"], answer["text"], answer["next_byte"], answer["ended"]
        )

    def state(self) -> JobLogState:
        """Return it from the daemon."""
        detail = self._client.get("jobs", self._job)
        return JobLogState(tuple(node["node_id"] for node in detail["nodes"]), _end(detail))


class RunLogSource:
    """Logs of a ``costopt run`` on the account's clouds, whose ledger is in ``state_dir``.

    Raise SpecError if the account names no store, LedgerError for an unknown job.
    """

    def __init__(self, account: Account, state_dir: Path, job: str) -> None:
        if account.store is None:
            raise _no_store()
        self._logs = StoreLogs(open_store(account.store))
        self._state_dir = state_dir
        self._job = job
        self._known: FoldState | None = None

    def read(self, node: str | None, after: int) -> LogChunk:
        """Return it from the store. Raise SpecError if the job has had no such node."""
        with open_state_ledger(self._state_dir, read_only=True) as ledger:
            check_known(ledger, self._state_dir, self._job)
            meant = logged_node(ledger, self._job, node)
        return self._logs.read(self._job, meant, after)

    def state(self) -> JobLogState:
        """Return it from the ledger."""
        from costopt.ledger.fold_cache import require_fold
        from costopt.ledger.summary import JobState

        with open_state_ledger(self._state_dir, read_only=True) as ledger:
            if self._known is None:
                check_known(ledger, self._state_dir, self._job)
            self._known = require_fold(ledger, self._job, self._known)
        now = job_now(self._state_dir, self._job, self._known.last_at)
        account = self._known.account
        state = account.summary(now).state
        ended = (JobState.FINISHED, JobState.FAILED, JobState.STOPPED)
        over = state.value if state in ended else ""
        return JobLogState(tuple(account.live_nodes()), over)


def _end(detail: Answer) -> str:
    state = str(detail["summary"]["state"])
    if state in FINISHED:
        return state
    cancelled = detail["submission"]["desired_state"] == "cancelled" and not detail["nodes"]
    return "cancelled" if cancelled else ""
