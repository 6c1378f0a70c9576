"""The settings of one agent, and parsers for numbers on its command line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from costopt.agent.contact import ContactSettings
from costopt.agent.launch_spec import LaunchMethod


def default_memory_bytes() -> int:
    """Return a quarter of this machine's memory, in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The identity of a node and its intervals, limits and folders. Seconds are of wall time.

    ``host`` is the address under which other members reach this node. ``grace_s`` is how long a
    trainer may take to save and stop, ``handover_s`` the same when a new generation already waits.
    A trainer that is done and does nothing for ``exit_s`` is ended.
    ``judge_s`` is how long a failed command's peers are watched before the command is blamed,
    ``peer_silent_s`` the heartbeat timeout of peers. ``data_folder`` caches the job's data on this
    node's disk, at most ``data_max_bytes`` of them; None caches none. ``workdir`` is the job's
    folder on this node, None if it has the controller's path. ``standby`` keeps a process ready
    that replaces a failed elastic trainer sooner than a new one. ``snapshot_bytes`` is the memory
    for snapshots of the state, a peer's included; 0 stores none. ``snapshot_folder`` is on a fast
    disk of this node and holds at most ``snapshot_disk_bytes`` of them; None stores none there.
    ``logs_s`` is the interval between uploads of the trainers' output, None if it stays on the
    node. Without ``contact`` the node runs until it is asked to leave.
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
    exit_s: float = 900.0
    data_folder: Path | None = None
    data_max_bytes: int = 0
    workdir: Path | None = None
    standby: bool = False
    snapshot_bytes: int = field(default_factory=default_memory_bytes)
    snapshot_folder: Path | None = None
    snapshot_disk_bytes: int = 0
    logs_s: float | None = None
    contact: ContactSettings | None = None

    def place(self, workdir: str) -> str:
        """Return where to run a command whose folder the controller has at ``workdir``."""
        return workdir if self.workdir is None else str(self.workdir)


MIN_INTERVAL_S = 0.01
"""With shorter intervals a process would do nothing else."""
DAY_S = 86_400.0
MAX_GIB = 1e6


def number_between(least: float, most: float) -> Callable[[str], float]:
    """Return an argparse ``type=``: a number from ``least`` to ``most``, both included."""

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
"""Seconds between polls, heartbeats or uploads."""
duration_s = number_between(0.0, DAY_S)
"""Seconds that an operation may take."""
gib = number_between(0.0, MAX_GIB)
