"""The command line and environment of a gang's trainer on one node."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from costopt.agent import exit_with_parent
from costopt.domain.array import fill_placeholders
from costopt.protocol.messages import Gang, Rendezvous

TETHER = str(Path(exit_with_parent.__file__).resolve())
PYTHONS = ("python", "python3")


class LaunchMethod(StrEnum):
    """How a gang's processes are started.

    TORCHRUN starts Python scripts under torchrun if a gang has more than one process; that takes
    some seconds and keeps signals from the script. DIRECT sets torchrun's variables itself.
    """

    TORCHRUN = "torchrun"
    DIRECT = "direct"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The Python of the job's scripts, and the path at which it finds ``exit_with_parent``."""

    python: str = sys.executable
    watchdog: str = TETHER


HERE = Interpreter()


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What to execute on the node or in its container.

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
    interpreter: Interpreter = HERE,
) -> tuple[ProcessSpec, ...]:
    """Return the processes to start on a node.

    A Python script gets torchrun's static rendezvous, also in place of a torchrun of its own: the
    gang says how many nodes and processes there are. Any other command gets the variables that
    torchrun would set. "python" names ``interpreter``, by default that of the agent, so that the
    job finds the packages that costopt found. A command that is not a Python script runs once per
    node. The
    processes of an elastic gang are started separately: torchrun would end them all when the first
    one fails, as it is to do where those of a node hold a copy of a sharded model. Raise ValueError
    if the node is not a member.
    """
    rank = gang.rank(node_id)
    if rank is None:
        raise ValueError(f"{node_id} is not a member of generation {gang.generation} of {gang.job}")
    script = _python_script(gang.command, interpreter.python)
    if gang.elastic and gang.is_sharded:
        gang, rank = replace(gang, elastic=False, members=(node_id,)), 0
        launcher = LaunchMethod.TORCHRUN
    if gang.elastic:
        return tuple(
            _direct(gang, rank, rendezvous, processes, local_rank, interpreter.python)
            for local_rank in range(processes)
        )
    many = len(gang.members) * processes > 1
    if script is not None and launcher is LaunchMethod.TORCHRUN and many:
        torchrun = _torchrun(len(gang.members), rank, processes, rendezvous, interpreter)
        return (ProcessSpec((*torchrun, *script), gang.env),)
    return (_direct(gang, rank, rendezvous, 1, 0, interpreter.python),)


def task_spec(
    gang: Gang, parameters: Mapping[str, str], interpreter: Interpreter = HERE
) -> ProcessSpec:
    """Return the process of an array's task: the command with its parameters in it.

    They are variables of its environment, too.
    """
    command = tuple(fill_placeholders(word, parameters) for word in gang.command)
    command = _python_script(command, interpreter.python) or command
    return ProcessSpec(command, (*gang.env, *parameters.items()))


def image_interpreter(command: Sequence[str], watchdog: str) -> Interpreter:
    """Return the interpreter in an image that a command means: the one it names, else python3."""
    return Interpreter(command[0] if command[0] in PYTHONS else "python3", watchdog)


def search_path() -> str:
    """Return the PATH of the job's programs: first those that its setup installed, such as
    accelerate."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"


def with_parent_watchdog(agent_pid: int) -> tuple[str, ...]:
    """Return the prefix of a command that is to die with the agent."""
    return (sys.executable, TETHER, str(agent_pid))


def _direct(
    gang: Gang, rank: int, rendezvous: Rendezvous, processes: int, local_rank: int, python: str
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
    command = _python_script(gang.command, python) or _without_torchrun(gang.command)
    words = command[2:] if command[:2] == (python, "-u") else ()
    return ProcessSpec(
        command,
        (*variables.items(), *gang.env),
        words if words and words[0].endswith(".py") else (),
    )


TORCHRUN = """\
import sys
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.run import main
try:
    main()
except SignalException as error:
    sys.exit(128 + error.sigval)
"""
"""torchrun, which prints no traceback when it is asked to stop; in an image, too."""


def _torchrun(
    nodes: int, rank: int, processes: int, rendezvous: Rendezvous, interpreter: Interpreter
) -> tuple[str, ...]:
    """The workers are tied to their parent too: torchrun puts each in a session of its own."""
    return (
        interpreter.python,
        "-c",
        TORCHRUN,
        f"--nnodes={nodes}",
        f"--node-rank={rank}",
        f"--nproc-per-node={processes}",
        f"--master-addr={rendezvous.host}",
        f"--master-port={rendezvous.port}",
        "--max-restarts=0",
        "--no-python",
        interpreter.python,
        interpreter.watchdog,
        "0",
    )


def _python_script(command: tuple[str, ...], python: str) -> tuple[str, ...] | None:
    """Return the command under ``python``, or None if it is not a Python script."""
    command = _without_torchrun(command)
    if command[0] in PYTHONS or command[0] == python:
        # -u: a buffered line would be missing from the log when the node is lost.
        return (python, "-u", *command[1:])
    if command[0].endswith(".py"):
        return (python, "-u", *command)
    return None


FLAGS = ("standalone", "no-python", "run-path", "module")
"""torchrun's options without a value (torch 2.13, torch/distributed/run.py)."""


def _without_torchrun(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return the script that a command of torchrun starts, another command as it is."""
    if Path(command[0]).name == "torchrun":
        words = list(command[1:])
    elif command[0] in PYTHONS and command[1:3] == ("-m", "torch.distributed.run"):
        words = list(command[3:])
    else:
        return command
    start = [PYTHONS[0]]
    while words and words[0].startswith("-"):
        name, has_value, _ = words.pop(0).partition("=")
        name = "module" if name == "-m" else name.lstrip("-").replace("_", "-")
        if name in FLAGS:
            start = {"module": [PYTHONS[0], "-m"], "no-python": []}.get(name, start)
        elif not has_value and words:
            words.pop(0)
    return (*start, *words) if words else command
