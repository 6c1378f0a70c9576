"""costopt logs"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from costopt.cli.server import connect, server_options
from costopt.cli.state import state_dir_option

if TYPE_CHECKING:
    from costopt.cli.log_source import LogSource

PAUSE_S = 1.0


@click.command()
@click.argument("job")
@click.option("--node", metavar="ID", help="A node of the job; default: rank 0 of its newest gang.")
@click.option("--follow", "-f", is_flag=True, help="Go on as the log grows, until it ends.")
@click.option(
    "--account",
    metavar="FILE",
    help="Ask no daemon: read what nodes of a costopt run keep in this account's store.",
)
@state_dir_option
@server_options
def logs(
    job: str,
    node: str | None,
    follow: bool,
    account: str | None,
    state_dir: Path,
    server: str,
    token_file: Path | None,
) -> None:
    """Print a node's log.

    Nodes that are gone have one too. With --follow and no --node, the log of the next gang's rank 0
    follows where one node gives way to another, until the job is over.
    """
    from costopt.cli.log_source import DaemonLogSource, RunLogSource
    from costopt.planning.request import load_account

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


class _LogReading:
    """Prints logs of one job."""

    def __init__(self, source: LogSource, job: str) -> None:
        self._source = source
        self._job = job
        self._told = ""

    def print_all(self, node: str | None) -> None:
        """What there is now."""
        piece = self._source.read(node, 0)
        if not piece.text:
            self._note(f"nothing has come of {piece.node_id}'s log")
        while piece.text:
            click.echo(piece.text, nl=False)
            piece = self._source.read(piece.node_id, piece.next_byte)

    def follow(self, node: str) -> None:
        """Until the node is gone and all of its log is printed."""
        after, gone = 0, False
        while True:
            piece = self._source.read(node, after)
            click.echo(piece.text, nl=False)
            after = piece.next_byte
            if piece.text:
                continue
            if gone:
                return
            gone = node not in self._source.state().nodes
            if not gone:
                time.sleep(PAUSE_S)

    def follow_gangs(self) -> None:
        """The first node of one gang after another, until the job is over."""
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
        if what != self._told:
            click.echo(what, err=True)
        self._told = what
