"""`costopt exec`: runs a command on a node of a job, to look into it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from costopt.cli.connection import connect, server_options
from costopt.cli.options import state_dir_option
from costopt.controller.state_dir import check_known, open_state_ledger
from costopt.domain.errors import CostoptError, SpecError
from costopt.domain.terminal_text import terminal_text
from costopt.protocol.node_commands import CommandBox, CommandResult, ExecRequest, choose_node
from costopt.store import open_store
from costopt.store.address import is_key_part

if TYPE_CHECKING:
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
@click.option(
    "--account",
    metavar="FILE",
    help="Use no daemon: reach a node of a costopt run through this account's store.",
)
@state_dir_option
@server_options
def exec_(
    job: str,
    command: tuple[str, ...],
    node: str | None,
    timeout_s: float,
    account: str | None,
    state_dir: Path,
    server: str,
    token_file: Path | None,
) -> None:
    """Run a command on a living node of a job, and print its output.

    It runs without a shell in the job's folder on the node, beside the container of a job with an
    image. Write -- before a command with options, as in costopt exec JOB -- ls -l. The exit code is
    the command's. keep_failed: in the job file keeps a node whose command failed. Of a simulated
    run in --state-dir, no daemon is asked.
    """
    store = _store_uri(job, account, state_dir)
    if store is None:
        chosen, poll = _post_to_daemon(connect(server, token_file), job, node, command, timeout_s)
    else:
        chosen = _living_node(state_dir, job, node)
        poll = _post(CommandBox(open_store(store), job), chosen, command, timeout_s)
    result = _wait(poll, job, chosen, timeout_s)
    if result.truncated:
        click.echo("note: only the end of the output was kept", err=True)
    click.echo(terminal_text(result.output), nl=False)
    if result.message:
        click.echo(f"{chosen}: {terminal_text(result.message)}", err=True)
    sys.exit(1 if result.exit_code is None else result.exit_code & 0xFF)


def _store_uri(job: str, account: str | None, state_dir: Path) -> str | None:
    """Return where the mailbox of a run lies, None for a job of a daemon. Raise SpecError."""
    from costopt.controller.simulated_site import STORE
    from costopt.planning.request import load_account

    if account is not None:
        uri = load_account(account).store
        if uri is None:
            raise SpecError(
                "the account file names no store, through which its nodes are reached",
                hint="name the account file that the run was started with",
                code="no_store",
            )
        return uri
    simulated = state_dir / "jobs" / job / STORE
    return str(simulated) if is_key_part(job) and simulated.is_dir() else None


def _living_node(state_dir: Path, job: str, node: str | None) -> str:
    """Return the node that is meant, by the ledger of a run. Raise SpecError, LedgerError."""
    from costopt.ledger.fold_cache import require_fold

    with open_state_ledger(state_dir, read_only=True) as ledger:
        check_known(ledger, state_dir, job)
        account = require_fold(ledger, job).account
    gang = () if account.gang is None else account.gang.node_ids
    return choose_node(job, tuple(account.live_nodes()), gang, node)


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
        hint=f"see whether it still lives: costopt show {job}",
        code="no_answer",
    )
