"""Commands on a job's nodes, for those who may submit jobs: they may run any command there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from costopt.daemon.service import DaemonService
from costopt.protocol.node_commands import CommandBox, CommandResult, ExecRequest, choose_node


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
    living = [node.node_id for node in service.job(job).nodes]
    chosen = choose_node(job, living, service.newest_gang(job), node_id)
    posted = ExecRequest.new(command, timeout_s)
    CommandBox(service.node_store, job).post(chosen, posted)
    return PostedCommand(job, chosen, posted.id)


def read_command(service: DaemonService, job: str, node_id: str, command_id: str) -> CommandState:
    """Return how far a command is. Raise SpecError where there is no such job."""
    service.job(job)
    result = CommandBox(service.node_store, job).result(node_id, command_id)
    return CommandState(job, node_id, command_id, result)
