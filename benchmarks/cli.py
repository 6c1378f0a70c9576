"""How long a person waits for the command line, imports included."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

RUNS = 5
JOB = Path(__file__).parent / "job_72h.yaml"
COMMANDS = {
    "costopt --help": ("--help",),
    "costopt catalog": ("catalog", "--output", "csv"),
    "costopt plan: one job, 72 h, every GPU pool of the catalogue": ("plan", str(JOB)),
    "costopt what-if: the same job": ("what-if", str(JOB)),
}


def run() -> list[tuple[str, float, str]]:
    """Best wall seconds of five runs of each command."""
    return [(label, _best_s(args), "s") for label, args in COMMANDS.items()]


def _best_s(args: tuple[str, ...]) -> float:
    seconds = []
    for _ in range(RUNS):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "costopt", *args], check=True, capture_output=True)
        seconds.append(time.perf_counter() - began)
    return min(seconds)
