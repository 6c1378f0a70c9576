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
from types import FrameType

COMMAND_S = 20
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


def leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    """Report the end of the node to Slurm, and end slurmd."""
    if (
        "POWER"
        not in scontrol("--oneliner", "show", "node", NAME).partition("State=")[2].split()[0]
    ):
        reason = "costopt: the node goes: interrupted, or moved to other capacity"
        scontrol("update", f"nodename={NAME}", "state=down", f"reason={reason}")
    slurmd.terminate()


# In a session of its own: the agent signals this process group, and slurmd is to end last.
slurmd = subprocess.Popen(["slurmd", "-D", "-b", "-N", NAME], start_new_session=True)  # noqa: S607
signal.signal(signal.SIGTERM, leave)
sys.exit(slurmd.wait())
