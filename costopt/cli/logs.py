"""`costopt logs`: prints what nodes and tasks printed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from costopt.cli.connection import OpenSource, source_options
from costopt.cli.options import account_option
from costopt.domain.terminal_text import TerminalTextFilter, terminal_text

if TYPE_CHECKING:
    from costopt.source.base import LogSource

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
@account_option
@source_options
def logs(
    job: str,
    node: str | None,
    task: int | None,
    follow: bool,
    account: str | None,
    source: OpenSource,
) -> None:
    """Print the log of a node, or of an array's task.

    Escape sequences, which a terminal would follow, are left out. Logs of terminated nodes are
    available too. With --follow and no --node, the log of rank 0 of each next gang follows that of
    the gang before, until the job is over. --task prints what all attempts of a task printed. Logs
    of a costopt run on clouds are in the store that the file of --account names.
    """
    from costopt.planning.request import load_account

    if task is not None and (follow or node is not None):
        raise click.UsageError("--task goes with neither --node nor --follow")
    with source() as runs:
        found = runs.logs(job, load_account(account))
        reading = _LogReading(found, job)
        if task is not None:
            click.echo(terminal_text(found.read_task(task)), nl=False)
        elif not follow:
            reading.print_all(node)
        elif node is not None:
            reading.follow(node)
        else:
            reading.follow_gangs()


class _LogReading:
    """Prints logs of one job."""

    def __init__(self, logs: LogSource, job: str) -> None:
        self._logs = logs
        self._job = job
        self._printed = ""

    def print_all(self, node: str | None) -> None:
        """Print what there is now."""
        piece = self._logs.read(node, 0)
        if not piece.text:
            self._note(f"the log of {piece.node_id} is empty so far")
        shown = TerminalTextFilter()
        while piece.text:
            click.echo(shown.feed(piece.text), nl=False)
            piece = self._logs.read(piece.node_id, piece.next_byte)

    def follow(self, node: str) -> None:
        """Print until the node is gone and all of its log is printed."""
        after, gone = 0, False
        shown = TerminalTextFilter()
        while True:
            piece = self._logs.read(node, after)
            click.echo(shown.feed(piece.text), nl=False)
            after = piece.next_byte
            if piece.text:
                continue
            if gone:
                return
            gone = node not in self._logs.state().nodes
            if not gone:
                time.sleep(PAUSE_S)

    def follow_gangs(self) -> None:
        """Print the log of the first node of one gang after another, until the job is over."""
        seen: set[str] = set()
        while True:
            state = self._logs.state()
            first = self._logs.read(None, 0).node_id if state.nodes else ""
            if first in state.nodes and first not in seen:
                seen.add(first)
                self._note(f"==> {first}")
                self.follow(first)
            elif state.over:
                self._note(f"{self._job} is {state.over}")
                return
            else:
                self._note(f"{self._job} has no new node: waiting for one")
                time.sleep(PAUSE_S)

    def _note(self, what: str) -> None:
        if what != self._printed:
            click.echo(what, err=True)
        self._printed = what
