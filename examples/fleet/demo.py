"""Ten trainings of three tenants on a simulated cluster of 16 GPUs, with spot for what overflows.

A daemon schedules them; each step is a command that you can type yourself, and is printed.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO

HERE = Path(__file__).parent
FILES = ("account.yaml", "policy.yaml", "train.py")
STATE = ("--state-dir", "state")
SERVER = ("--server", "unix:state/daemon.sock")
MARKET = (
    "market", "generate", "--out", "market.parquet", "--provider", "aws", "--region", "us-east-1",
    "--instance-type", "g4dn.12xlarge", "--hours", "48", "--profile", "typical", "--seed", "0",
    "--tick", "60",
)  # fmt: skip
DAEMON = (
    "daemon", "--market", "market.parquet", "--account", "account.yaml", "--speed", "60",
    "--tick", "60", "--mode", "enforce", "--listen", "none", "--refresh-prices", "none", *STATE,
)  # fmt: skip
PATIENCE_S = 1200.0
SPEED, STEP_S, SCALING = 60, 0.5, 1.7


@dataclass(frozen=True)
class Training:
    """A job: who asks for how many GPUs, how much work it is, what an hour of waiting costs, and
    how many seconds after the first it is submitted."""

    name: str
    tenant: str
    gpus: int
    steps: int
    usd_per_hour_waited: float
    after_s: int

    def job(self) -> str:
        """Return the job file. Times are those of the simulated cluster's clock."""
        sizes = [1 << power for power in range(4)]
        points = [
            {"gpu": "T4", "gpus": gpus, "units_per_s": round(SCALING**power / STEP_S / SPEED, 5)}
            for power, gpus in enumerate(sizes)
        ]
        command = ["python", "train.py", "--steps", str(self.steps), "--output", self.output]
        document = {
            "kind": "job",
            "version": 1,
            "name": self.name,
            "tenant": self.tenant,
            "work": {"amount": self.steps, "unit": "steps"},
            "resources": {"gpu_models": ["T4"], "gpus": self.gpus, "min_gpus": 1, "max_gpus": 8},
            "throughput": {"points": points},
            "value": {"usd_per_hour_waited": self.usd_per_hour_waited},
            "checkpoint": {"uri": self.output, "size_gib": 0.001, "save": "5s", "restore": "30s"},
            "startup": "90s",
            "run": command,
        }
        return json.dumps(document, indent=1) + "\n"

    @property
    def output(self) -> str:
        """Where the job saves."""
        return f"output/{self.name}"


TRAININGS = (
    Training("detect", "vision", 8, 700, 4.0, 0),
    Training("segment", "vision", 4, 400, 2.0, 0),
    Training("caption", "vision", 2, 200, 1.0, 0),
    Training("wake-word", "speech", 1, 100, 0.5, 0),
    Training("recognize", "speech", 8, 600, 3.0, 0),
    Training("translate", "speech", 4, 300, 2.0, 20),
    Training("rank", "search", 4, 400, 2.0, 20),
    Training("embed", "search", 2, 150, 1.0, 40),
    Training("spell", "search", 1, 60, 0.5, 40),
    Training("track", "vision", 2, 150, 1.0, 60),
)


def main() -> int:
    """Run the demo in a fresh folder; 0 once all jobs are done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=float, default=1.0, help="factor of each training's steps")
    parser.add_argument("--jobs", type=int, default=len(TRAININGS), help="only the first so many")
    parser.add_argument("--folder", type=Path, help="a new folder; default: below demo-output")
    options = parser.parse_args()
    named = Path("demo-output") / f"fleet-{datetime.now():%Y%m%d-%H%M%S}"  # noqa: DTZ005 - a name
    folder: Path = options.folder or named
    folder.mkdir(parents=True)
    for name in FILES:
        shutil.copy(HERE / name, folder)
    _costopt(folder, MARKET)
    begun = time.monotonic()
    with _started(folder, DAEMON) as daemon:
        try:
            _submit_all(folder, TRAININGS[: options.jobs], options.work, daemon)
            _await_all(folder, daemon)
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait()
    print(f"\nall {options.jobs} jobs are done after {time.monotonic() - begun:.0f} s")
    _costopt(folder, ("status", *STATE))
    with (folder / "report.html").open("wb") as page:
        _costopt(folder, ("report", TRAININGS[0].name, *STATE, "-o", "html"), to=page)
    return 0


def _submit_all(
    folder: Path, trainings: Sequence[Training], work: float, daemon: subprocess.Popen[bytes]
) -> None:
    while not (folder / "state" / "daemon.sock").exists():
        if daemon.poll() is not None:
            sys.exit(f"the daemon ended; see {folder / 'daemon.log'}")
        time.sleep(0.2)
    begun = time.monotonic()
    for training in trainings:
        time.sleep(max(0.0, begun + training.after_s * work - time.monotonic()))
        less = Training(
            training.name, training.tenant, training.gpus, max(1, round(training.steps * work)),
            training.usd_per_hour_waited, training.after_s,
        )  # fmt: skip
        (folder / f"{training.name}.yaml").write_text(less.job(), encoding="utf-8")
        file = f"{training.name}.yaml"
        _costopt(folder, ("submit", file, "--policy", "policy.yaml", *SERVER))


def _await_all(folder: Path, daemon: subprocess.Popen[bytes]) -> None:
    """Wait for the ends of all jobs. Exit if one fails, or the daemon does."""
    command = [sys.executable, "-m", "costopt", "status", "--output", "json", *SERVER]
    ends, before = time.monotonic() + PATIENCE_S, ""
    while time.monotonic() < ends and daemon.poll() is None:
        listed = subprocess.run(command, cwd=folder, capture_output=True, check=True, text=True)
        rows = json.loads(listed.stdout)["rows"]
        if all(row["state"] == "finished" and row["nodes"] == 0 for row in rows):
            return
        failed = [row["job"] for row in rows if row["state"] == "failed"]
        if failed:
            sys.exit(f"{', '.join(failed)} failed; see costopt events {failed[0]}")
        line = ", ".join(f"{row['job']} {row['done_share'] or 0:.0%}" for row in rows)
        if line != before:
            print(line, flush=True)
        before = line
        time.sleep(5)
    sys.exit(f"not all jobs came to an end; see {folder / 'daemon.log'}")


def _started(folder: Path, arguments: tuple[str, ...]) -> subprocess.Popen[bytes]:
    print(f"\n$ costopt {shlex.join(arguments)} 2> daemon.log &", flush=True)
    with (folder / "daemon.log").open("wb") as log:
        command = [sys.executable, "-m", "costopt", *arguments]
        return subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)


def _costopt(folder: Path, arguments: tuple[str, ...], to: IO[bytes] | None = None) -> None:
    """Print a command and run it, its output ``to`` a file. Exit where it fails."""
    print(f"\n$ costopt {shlex.join(arguments)}{' > report.html' if to else ''}", flush=True)
    command = [sys.executable, "-m", "costopt", *arguments]
    done = subprocess.run(command, cwd=folder, check=False, stdout=to)
    if done.returncode != 0:
        sys.exit(done.returncode)


if __name__ == "__main__":
    sys.exit(main())
