"""One cloud node of a Slurm cluster: slurmd under the name that Slurm gave it.

The gang's rank decides on the name. SIGTERM comes before the node goes: where Slurm is not
powering the node down, its job is about to be lost, and it is set DOWN with the reason so that
Slurm requeues the job at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from types import FrameType

COMMAND_S = 20
POLL_S = 0.5
NAME = os.environ["SLURM_NODES"].split(",")[int(os.environ["RANK"])]


def scontrol(*words: str) -> str:
    """Return what scontrol prints; "" if it fails or does not answer in time."""
    try:
        done = subprocess.run(
            ["scontrol", *words],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def report_end() -> None:
    """Have Slurm requeue the node's job at once, unless it is powering the node down itself."""
    state = scontrol("--oneliner", "show", "node", NAME).partition("State=")[2].split(maxsplit=1)
    if state and "POWER" not in state[0]:
        reason = "costopt: the node goes: interrupted, or moved to other capacity"
        scontrol("update", f"nodename={NAME}", "state=down", f"reason={reason}")


def main() -> int:
    """Run slurmd until it ends or SIGTERM comes; return its exit status."""
    # In a session of its own: the agent signals this process group, and slurmd is to end last.
    slurmd = subprocess.Popen(["slurmd", "-D", "-b", "-N", NAME], start_new_session=True)  # noqa: S607
    asked = False

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        nonlocal asked
        asked = True

    signal.signal(signal.SIGTERM, note)
    leaves = False
    while (status := slurmd.poll()) is None:
        if asked and not leaves:
            leaves = True
            report_end()  # slurmd is there to end the job's processes
            slurmd.terminate()
        time.sleep(POLL_S)
    if leaves:
        report_end()  # slurmd may have registered meanwhile, and so returned the node to service
    return status


sys.exit(main())
