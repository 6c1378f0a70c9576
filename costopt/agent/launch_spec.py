"""The command line and environment of a gang's trainer on one node."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from costopt.agent import exit_with_parent
from costopt.protocol.messages import Gang, Rendezvous

TETHER = str(Path(exit_with_parent.__file__).resolve())
PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
PYTHONS = ("python", "python3")


class LaunchMethod(StrEnum):
    """How a gang's processes are started.

    TORCHRUN starts Python scripts under torchrun if a gang has more than one process; that takes
    some seconds and keeps signals from the script. DIRECT sets torchrun's variables itself.
    """

    TORCHRUN = "torchrun"
    DIRECT = "direct"


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What to execute: every process of it dies with its parent.

    ``script`` is the Python script in it and its arguments, empty if it does not run one.
    """

    command: tuple[str, ...]
    variables: tuple[tuple[str, str], ...]
    script: tuple[str, ...] = ()


def process_specs(
    gang: Gang,
    node_id: str,
    rendezvous: Rendezvous,
    *,
    launcher: LaunchMethod,
    processes: int,
    agent_pid: int,
) -> tuple[ProcessSpec, ...]:
    """Return the processes to start on a node.

    A Python script gets torchrun's static rendezvous, any other command the variables that torchrun
    would set. "python" names the interpreter of the agent, so that the job finds the packages that
    costopt found. A command that is not a Python script runs once per node. The processes of an
    elastic gang are started separately: torchrun would end them all when the first one fails. Raise
    ValueError if the node is not a member.
    """
    rank = gang.rank(node_id)
    if rank is None:
        raise ValueError(f"{node_id} is not a member of generation {gang.generation} of {gang.job}")
    script = _python_script(gang.command)
    if gang.elastic:
        return tuple(
            _direct(gang, rank, rendezvous, processes, local_rank, agent_pid)
            for local_rank in range(processes)
        )
    many = len(gang.members) * processes > 1
    if script is not None and launcher is LaunchMethod.TORCHRUN and many:
        command = (*_torchrun(len(gang.members), rank, processes, rendezvous), *script)
        return (ProcessSpec((*with_parent_watchdog(agent_pid), *command), gang.env),)
    return (_direct(gang, rank, rendezvous, 1, 0, agent_pid),)


def task_spec(gang: Gang, parameters: Mapping[str, str], agent_pid: int) -> ProcessSpec:
    """Return the process of an array's task: the command with ``{name}`` replaced by parameters.

    They are variables of its environment, too.
    """
    command = tuple(
        PLACEHOLDER.sub(lambda match: parameters.get(match[1], match[0]), word)
        for word in gang.command
    )
    command = _python_script(command) or command
    return ProcessSpec(
        (*with_parent_watchdog(agent_pid), *command), (*gang.env, *parameters.items())
    )


def with_parent_watchdog(agent_pid: int) -> tuple[str, ...]:
    """Return the prefix of a command that is to die with the agent."""
    return (sys.executable, TETHER, str(agent_pid))


def _direct(
    gang: Gang,
    rank: int,
    rendezvous: Rendezvous,
    processes: int,
    local_rank: int,
    agent_pid: int,
) -> ProcessSpec:
    """Return one process with the variables that torchrun would set."""
    variables = {
        "RANK": str(rank * processes + local_rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(len(gang.members) * processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": rendezvous.host,
        "MASTER_PORT": str(rendezvous.port),
    }
    command = _python_script(gang.command) or gang.command
    words = command[2:] if command[:2] == (sys.executable, "-u") else ()
    return ProcessSpec(
        (*with_parent_watchdog(agent_pid), *command),
        (*variables.items(), *gang.env),
        words if words and words[0].endswith(".py") else (),
    )


def _torchrun(nodes: int, rank: int, processes: int, rendezvous: Rendezvous) -> tuple[str, ...]:
    """The workers are tied to their parent too: torchrun puts each in a session of its own."""
    return (
        sys.executable,
        "-m",
        "torch.distributed.run",
        f"--nnodes={nodes}",
        f"--node-rank={rank}",
        f"--nproc-per-node={processes}",
        f"--master-addr={rendezvous.host}",
        f"--master-port={rendezvous.port}",
        "--max-restarts=0",
        "--no-python",
        sys.executable,
        TETHER,
        "0",
    )


def _python_script(command: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the command under the agent's interpreter, or None if it is not a Python script."""
    if command[0] in PYTHONS or command[0] == sys.executable:
        return (sys.executable, "-u", *command[1:])
    if command[0].endswith(".py"):
        return (sys.executable, "-u", *command)
    return None
