"""costopt logs"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from costopt.cli.server import connect, server_options

if TYPE_CHECKING:
    from costopt.client.client import Client

PAUSE_S = 1.0
OVER = ("finished", "failed")


@click.command()
@click.argument("job")
@click.option("--node", metavar="ID", help="A node of the job; default: the newest.")
@click.option("--follow", "-f", is_flag=True, help="Go on as the log grows, until it ends.")
@server_options
def logs(job: str, node: str | None, follow: bool, server: str, token_file: Path | None) -> None:
    """Print a node's log.

    With --follow and no --node, the log of the next node follows where one node gives way to
    another, until the job is over.
    """
    reading = _Reading(connect(server, token_file), job)
    if not follow:
        reading.print_all(node)
    elif node is not None:
        reading.follow(node)
    else:
        reading.follow_newest()


class _Reading:
    """Prints logs of one job."""

    def __init__(self, client: Client, job: str) -> None:
        self._client = client
        self._job = job
        self._told = ""

    def print_all(self, node: str | None) -> None:
        """What there is now."""
        piece = self._piece(node, 0)
        while piece["text"]:
            click.echo(piece["text"], nl=False)
            piece = self._piece(piece["node_id"], piece["next_byte"])

    def follow(self, node: str) -> None:
        """Until the node is gone and all of its log is printed."""
        after, gone = 0, False
        while True:
            piece = self._piece(node, after)
            click.echo(piece["text"], nl=False)
            after = piece["next_byte"]
            if piece["text"]:
                continue
            if gone:
                return
            nodes = self._client.get("jobs", self._job)["nodes"]
            gone = all(each["node_id"] != node for each in nodes)
            if not gone:
                time.sleep(PAUSE_S)

    def follow_newest(self) -> None:
        """One node after another, until the job is over."""
        seen: set[str] = set()
        while True:
            detail = self._client.get("jobs", self._job)
            fresh = [node for node in detail["nodes"] if node["node_id"] not in seen]
            if fresh:
                newest = max(fresh, key=lambda node: str(node["launched_at"]))["node_id"]
                seen |= {node["node_id"] for node in fresh}
                self._note(f"==> {newest}")
                self.follow(newest)
            elif _over(detail):
                self._note(f"{self._job} is {_state(detail)}")
                return
            else:
                self._note(f"{self._job} has no new node: waiting for one")
                time.sleep(PAUSE_S)

    def _piece(self, node: str | None, after: int) -> dict[str, Any]:
        return self._client.get("jobs", self._job, "logs", node=node, after=after)

    def _note(self, what: str) -> None:
        if what != self._told:
            click.echo(what, err=True)
        self._told = what


def _over(detail: dict[str, Any]) -> bool:
    stopped = detail["submission"]["intent"] == "cancelled" and not detail["nodes"]
    return stopped or detail["summary"]["state"] in OVER


def _state(detail: dict[str, Any]) -> str:
    state = str(detail["summary"]["state"])
    return state if state in OVER else "cancelled"
