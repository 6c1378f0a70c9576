"""Commands on a job's nodes, for those who may submit jobs: they may run any command there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from costopt.daemon.service import DaemonService
from costopt.daemon.shared_state import JobStatus
from costopt.domain.events import GangFormed
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
    service: DaemonService,
    status: JobStatus,
    node_id: str | None,
    command: Sequence[str],
    timeout_s: float,
) -> PostedCommand:
    """Have a living node of the job run a command; by default rank 0 of its newest gang if it
    lives, else the first that does. Raise SpecError where there is none."""
    job, living = status.submission.name, [node.node_id for node in status.nodes]
    gang = next((gang.node_ids for _, gang in service.ledger.newest(GangFormed, job)), ())
    chosen = choose_node(job, living, gang, node_id)
    posted = ExecRequest.new(command, timeout_s)
    CommandBox(service.logs.store, job).post(chosen, posted)
    return PostedCommand(job, chosen, posted.id)


def read_command(service: DaemonService, job: str, node_id: str, command_id: str) -> CommandState:
    """Return how far a command is."""
    result = CommandBox(service.logs.store, job).result(node_id, command_id)
    return CommandState(job, node_id, command_id, result)
