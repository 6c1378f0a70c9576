"""AgentSettings, CLI numbers.

How one agent is set up.

Numbers on the command lines of processes on nodes: in bounds, or refused with the bounds.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from costopt.agent.launch_spec import LaunchMethod


def default_memory_bytes() -> int:
    """Of this machine, in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Who this node is and how it looks around. Seconds are of the wall.

    ``host`` is the address under which other members reach this node. ``grace_s`` is how long a
    trainer may take to save and stop, ``handover_s`` when a new generation already waits.
    ``judge_s`` is how long a failed command's peers are watched before the command is blamed,
    ``peer_silent_s`` how long a peer may stay unheard. ``data_folder`` keeps the job's data on
    this node's disk, at most ``data_most_bytes`` of them; None keeps none. ``workdir`` is where the
    job's folder lies here, None where it lies where the controller has it. ``standby`` keeps a
    process ready that takes an elastic trainer's place sooner than a new one. ``snapshot_bytes``
    is how much memory snapshots of the state may take, a peer's included; 0 keeps none.
    ``snapshot_folder`` is on a fast disk of this node and holds at most ``snapshot_disk_bytes`` of
    them; None keeps none there. ``logs_s`` is how often what trainers print goes to the store, None
    where it stays here.
    """

    job: str
    node_id: str
    folder: Path
    host: str = "127.0.0.1"
    launcher: LaunchMethod = LaunchMethod.TORCHRUN
    processes: int = 1
    poll_s: float = 0.1
    heartbeat_s: float = 0.5
    grace_s: float = 120.0
    handover_s: float = 10.0
    judge_s: float = 2.5
    peer_silent_s: float = 10.0
    data_folder: Path | None = None
    data_most_bytes: int = 0
    workdir: Path | None = None
    standby: bool = False
    snapshot_bytes: int = field(default_factory=default_memory_bytes)
    snapshot_folder: Path | None = None
    snapshot_disk_bytes: int = 0
    logs_s: float | None = None

    def place(self, workdir: str) -> str:
        """Where the command runs whose folder the controller has at ``workdir``."""
        return workdir if self.workdir is None else str(self.workdir)


MIN_INTERVAL_S = 0.01
"""Shorter ones would have a process do nothing else."""
DAY_S = 86_400.0
MAX_GIB = 1e6


def number_between(least: float, most: float) -> Callable[[str], float]:
    """For ``type=`` of argparse: a number from ``least`` to ``most``, both allowed."""

    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(
                f"expected a number from {least:g} to {most:g}, got {text!r}"
            )
        return value

    return number


interval_s = number_between(MIN_INTERVAL_S, DAY_S)
"""Seconds from one look, beat or sending to the next."""
duration_s = number_between(0.0, DAY_S)
"""Seconds that something may take."""
gib = number_between(0.0, MAX_GIB)
