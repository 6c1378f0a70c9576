"""What `costopt daemon slurm` asks of Slurm: the gang that each job needs, and the states of nodes.

Functions raise CostoptError where a command fails.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from costopt.domain.errors import CostoptError
from costopt.provider.slurm_commands import CommandRunner

MAX_REASON_LENGTH = 200
POWERING_DOWN = ("%", "~", "!")
"""With which sinfo marks nodes that are powered down, are powering down, or are about to."""


@dataclass(frozen=True, slots=True)
class BurstGang:
    """Nodes of the cloud that Slurm needs together.

    ``job_id`` is None where an administrator powered them up. ``limit_s`` and ``deadline_at`` are
    the job's, None where it has none.
    """

    nodes: tuple[str, ...]
    job_id: int | None = None
    limit_s: float | None = None
    deadline_at: datetime | None = None

    def __str__(self) -> str:
        """Return a name for messages."""
        owner = "" if self.job_id is None else f" of Slurm job {self.job_id}"
        return f"{','.join(self.nodes)}{owner}"


def requested_gangs(hostlist: str, resume_file: str | None) -> tuple[BurstGang, ...]:
    """Return the nodes of a call of ResumeProgram by the job that each is for.

    ``resume_file`` is SLURM_RESUME_FILE; without it all nodes are one gang.
    """
    left = dict.fromkeys(expand(hostlist))
    gangs = []
    for job_id, hosts in _resume_jobs(resume_file):
        nodes = tuple(node for node in expand(hosts) if node in left)
        for node in nodes:
            del left[node]
        if nodes:
            gangs.append(_gang_of_job(nodes, job_id))
    return (*gangs, BurstGang(tuple(left))) if left else tuple(gangs)


def expand(hostlist: str) -> tuple[str, ...]:
    """Return the names of a list such as ``c[1-4]``."""
    return tuple(_run("scontrol", "show", "hostnames", hostlist).split())


def mark_down(nodes: Iterable[str], reason: str) -> None:
    """Set nodes DOWN, so that Slurm requeues their job at once."""
    text = f"costopt: {' '.join(reason.split())}"[:MAX_REASON_LENGTH]
    _run("scontrol", "update", f"nodename={','.join(nodes)}", "state=down", f"reason={text}")


def nodes_in_use(nodes: Iterable[str]) -> frozenset[str]:
    """Return those of the nodes that are up, with jobs or idle, and that Slurm does not power down.

    Nodes of a cloud that are powered down are not shown.
    """
    shown = _run("sinfo", "--noheader", "--Node", "--nodes", ",".join(nodes), "--format", "%N %T")
    states = dict(line.split()[:2] for line in shown.splitlines() if len(line.split()) > 1)
    return frozenset(
        name
        for name, state in states.items()
        if not state.endswith(POWERING_DOWN) and not state.startswith("down")
    )


def _resume_jobs(resume_file: str | None) -> list[tuple[int, str]]:
    if not resume_file:
        return []
    try:
        jobs = json.loads(Path(resume_file).read_text(encoding="utf-8"))["jobs"]
        return [(int(job["job_id"]), str(job["nodes"])) for job in jobs]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise CostoptError(f"SLURM_RESUME_FILE {resume_file} cannot be read: {error}") from None


def _gang_of_job(nodes: tuple[str, ...], job_id: int) -> BurstGang:
    from costopt.spec.sbatch_values import limit_s

    shown = _run(
        "squeue", "--noheader", "--jobs", str(job_id), "--Format", "Deadline:.40,TimeLimit:.40"
    )
    deadline, limit = [*shown.split(), "", ""][:2]
    try:
        seconds = limit_s(limit)
    except ValueError:
        seconds = None
    at = datetime.fromtimestamp(int(deadline), UTC) if deadline.isdigit() else None
    return BurstGang(nodes, job_id, seconds, at)


def _run(program: str, *arguments: str) -> str:
    return CommandRunner(slurm_conf=os.environ.get("SLURM_CONF")).slurm(program, *arguments)
