"""Commands on a job's nodes, for those who may submit jobs: they may run any command there."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from costopt.daemon.service import DaemonService
from costopt.domain.errors import SpecError
from costopt.protocol.node_commands import CommandBox, CommandResult, ExecRequest


@dataclass(frozen=True, slots=True)
class PostedCommand:
    """A command that a node is to run; ask for its result with both."""

    job: str
    node_id: str
    id: str


@dataclass(frozen=True, slots=True)
class CommandState:
    """``result`` is None until the command has ended."""

    job: str
    node_id: str
    id: str
    result: CommandResult | None


def post_command(
    service: DaemonService, job: str, node_id: str | None, command: Sequence[str], timeout_s: float
) -> PostedCommand:
    """Have a living node of the job run a command; by default rank 0 of its newest gang if it
    lives, else the first that does. Raise SpecError where there is none."""
    status = service.job(job)
    living = [node.node_id for node in status.nodes]
    first = next((node for node in service.newest_gang(job) if node in living), None)
    chosen = node_id if node_id is not None else first or next(iter(living), None)
    if chosen is None or chosen not in living:
        which = "no node" if node_id is None else f"no node {node_id!r}"
        raise SpecError(
            f"job {job!r} has {which} that lives",
            hint="keep_failed: in the job file keeps a node whose command failed; see costopt show",
            code="no_node",
        )
    posted = ExecRequest(secrets.token_hex(8), tuple(command), timeout_s)
    CommandBox(service.node_store, job).post(chosen, posted)
    return PostedCommand(job, chosen, posted.id)


def read_command(service: DaemonService, job: str, node_id: str, command_id: str) -> CommandState:
    """Return how far a command is. Raise SpecError where there is no such job."""
    service.job(job)
    result = CommandBox(service.node_store, job).result(node_id, command_id)
    return CommandState(job, node_id, command_id, result)
