"""`costopt exec`: runs a command on a node of a job, to look into it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from costopt.cli.connection import OpenSource, source_options
from costopt.cli.options import account_option
from costopt.domain.errors import CostoptError
from costopt.domain.terminal_text import terminal_text
from costopt.protocol.node_commands import CommandBox, CommandResult, ExecRequest, choose_node

if TYPE_CHECKING:
    from costopt.api.ledgers import JobRun
    from costopt.client.client import DaemonClient

POLL_S = 1.0
START_TIMEOUT_S = 60.0
"""Beyond the command's own time: a node that does not answer by then is out of reach."""
Poll = Callable[[], CommandResult | None]


@click.command("exec", context_settings={"ignore_unknown_options": True})
@click.argument("job")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--node", metavar="ID", help="A node of the job; default: rank 0 of its newest gang.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(1, 600), default=60.0,
              show_default=True, help="Seconds after which the command is killed.")  # fmt: skip
@account_option
@source_options
def exec_(
    job: str,
    command: tuple[str, ...],
    node: str | None,
    timeout_s: float,
    account: str | None,
    source: OpenSource,
) -> None:
    """Run a command on a living node of a job, and print its output.

    It runs without a shell in the job's folder on the node, beside the container of a job with an
    image. Write -- before a command with options, as in costopt exec JOB -- ls -l. The exit code is
    the command's. keep_failed: in the job file keeps a node whose command failed. A node of a
    costopt run on clouds is reached through the store that the file of --account names.
    """
    from costopt.planning.request import load_account
    from costopt.source.daemon import DaemonSource
    from costopt.source.ledger import LedgerSource

    with source() as runs:
        if isinstance(runs, DaemonSource):
            chosen, poll = _post_to_daemon(runs.client, job, node, command, timeout_s)
        else:
            assert isinstance(runs, LedgerSource)
            store = runs.node_store(job, load_account(account))
            chosen = _living_node(runs.job(job), node)
            poll = _post(CommandBox(store, job), chosen, command, timeout_s)
    result = _wait(poll, job, chosen, timeout_s)
    if result.truncated:
        click.echo("note: only the end of the output was kept", err=True)
    click.echo(terminal_text(result.output), nl=False)
    if result.message:
        click.echo(f"{chosen}: {terminal_text(result.message)}", err=True)
    sys.exit(1 if result.exit_code is None else result.exit_code & 0xFF)


def _living_node(run: JobRun, node: str | None) -> str:
    """Return the node that is meant, by the ledger of a run. Raise SpecError, LedgerError."""
    account = run.account()
    gang = () if account.gang is None else account.gang.node_ids
    return choose_node(run.name, tuple(account.live_nodes()), gang, node)


def _post(box: CommandBox, node: str, command: tuple[str, ...], timeout_s: float) -> Poll:
    posted = ExecRequest.new(command, timeout_s)
    box.post(node, posted)
    return lambda: box.result(node, posted.id)


def _post_to_daemon(
    client: DaemonClient, job: str, node: str | None, command: tuple[str, ...], timeout_s: float
) -> tuple[str, Poll]:
    body = {"command": list(command), "node": node, "timeout_s": timeout_s}
    posted = client.send("POST", "jobs", job, "commands", body=body)

    def poll() -> CommandResult | None:
        answer = client.get("jobs", job, "commands", posted["node_id"], posted["id"])
        return None if answer["result"] is None else CommandResult(**answer["result"])

    return str(posted["node_id"]), poll


def _wait(poll: Poll, job: str, node: str, timeout_s: float) -> CommandResult:
    until_s = time.monotonic() + timeout_s + START_TIMEOUT_S
    while time.monotonic() < until_s:
        time.sleep(POLL_S)
        result = poll()
        if result is not None:
            return result
    raise CostoptError(
        f"node {node} of job {job!r} did not answer",
        hint=f"see whether it still lives: costopt status {job}",
        code="no_answer",
    )
