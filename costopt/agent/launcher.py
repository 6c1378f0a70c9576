"""From a gang to the command line and the environment of its trainer on one node."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from costopt.agent import tether
from costopt.agent.gang import Gang, Rendezvous

TETHER = str(Path(tether.__file__).resolve())
PYTHONS = ("python", "python3")


class Launcher(StrEnum):
    """TORCHRUN starts Python scripts under torchrun where a gang has more than one process, which
    takes it some seconds and keeps signals from the script; DIRECT sets its variables itself."""

    TORCHRUN = "torchrun"
    DIRECT = "direct"


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """What to execute: every process of it dies with its parent."""

    command: tuple[str, ...]
    variables: tuple[tuple[str, str], ...]


def launch_spec(
    gang: Gang,
    node_id: str,
    rendezvous: Rendezvous,
    *,
    launcher: Launcher,
    processes: int,
    agent_pid: int,
) -> LaunchSpec:
    """torchrun's static rendezvous for a Python script, the variables it would set for the rest.

    "python" names the interpreter of the agent, so that the job finds what costopt found. A
    command that is no Python script runs once per node.
    """
    rank = gang.rank(node_id)
    if rank is None:
        raise ValueError(f"{node_id} is no member of generation {gang.generation} of {gang.job}")
    script = _python_script(gang.command)
    tied = (sys.executable, TETHER, str(agent_pid))
    many = len(gang.members) * processes > 1
    if script is not None and launcher is Launcher.TORCHRUN and many:
        return LaunchSpec(
            (*tied, *_torchrun(len(gang.members), rank, processes, rendezvous), *script),
            gang.env,
        )
    variables = {
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(len(gang.members)),
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": rendezvous.host,
        "MASTER_PORT": str(rendezvous.port),
    }
    return LaunchSpec((*tied, *(script or gang.command)), (*variables.items(), *gang.env))


def _torchrun(nodes: int, rank: int, processes: int, rendezvous: Rendezvous) -> tuple[str, ...]:
    """The workers are tethered too: torchrun puts each in a session of its own."""
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
    """The command under the agent's own interpreter, or None where it is no Python script."""
    if command[0] in PYTHONS or command[0] == sys.executable:
        return (sys.executable, "-u", *command[1:])
    if command[0].endswith(".py"):
        return (sys.executable, "-u", *command)
    return None
