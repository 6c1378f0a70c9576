"""The main job, end to end: a market takes nodes away, and the job is done in time all the same.

Each step is a command that you can type yourself; it is printed before it runs. The simulated clock
runs as fast as this machine can keep up with.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

HERE = Path(__file__).parent
FILES = ("job.yaml", "train.py", "model.py", "corpus.py")
PLAN = ("plan", "job.yaml", "--market", "market.parquet")
STATUS = ("status", "finetune", "--state-dir", "state", "-o", "json")
REPORT = ("report", "finetune", "--state-dir", "state", "-o", "html")
MAX_SPEED, SLOW_SPEED = 100, 25
"""Below the lower one starts may take longer on the clock, so that the demo does not take hours."""
STEP_S, START_S, SLOW_START_S = 20.0, 600.0, 1800.0
"""Of the simulated clock, the first two as job.yaml declares them."""
MEASURED_STEPS = 10
ALLOWANCE = 0.8
"""The part of its time that a step or a start is given, as the machine may become busier."""
START_SHARE = 0.5
"""The part of a node's start that is the script's own; an agent starts besides, and a group."""


def main() -> int:
    """Run the demo in a new folder; the exit code of the first command that fails.

    A job that ended late because the machine is slower than it was when measured is explained.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", default="typical", help="of costopt market generate")
    parser.add_argument("--seed", type=int, default=0, help="of costopt market generate")
    parser.add_argument("--speed", type=int, help="of the clock; default: as measured")
    options = parser.parse_args()
    folder = Path("demo-output") / f"{datetime.now():%Y%m%d-%H%M%S}"  # noqa: DTZ005 - a folder's name
    folder.mkdir(parents=True)
    for name in FILES:
        shutil.copy(HERE / name, folder)
    speed, start_s = _measured(folder)
    speed = options.speed or speed
    _set_times(folder / "job.yaml", STEP_S / speed, start_s * speed)
    for arguments in (_market(options.profile, options.seed), PLAN):
        if code := _costopt(arguments, folder):
            return code
    code = _costopt(_run(speed), folder)
    with (folder / "report.html").open("wb") as page:
        reported = _costopt(REPORT, folder, to=page.fileno())
    print(f"\nReport: {(folder / 'report.html').resolve()}")
    if code and _is_late(folder):
        print(
            "The job ended after its deadline: this machine could not keep up with a clock "
            f"{speed} times as fast as the wall's. On a slower one it ends in time:\n"
            f"python examples/finetune/demo.py --speed {max(1, speed // 2)}"
        )
        return 0
    if code == 0:
        print(f"Weights: {(folder / 'output' / 'weights.sha256').read_text().strip()}")
    return code or reported


def _market(profile: str, seed: int) -> tuple[str, ...]:
    """Return the command that generates the demo's market."""
    return (
        "market", "generate", "--out", "market.parquet", "--provider", "aws", "--region",
        "us-east-1", "--instance-type", "g4dn.xlarge", "--hours", "24", "--profile", profile,
        "--seed", str(seed), "--tick", "60",
    )  # fmt: skip


def _run(speed: int) -> tuple[str, ...]:
    return (
        "run", "job.yaml", "--policy", "cheapest", "--market", "market.parquet", "--speed",
        str(speed), "--notice", "120", "--tick", "60", "--state-dir", "state", "--apply",
    )  # fmt: skip


def _measured(folder: Path) -> tuple[int, float]:
    """Time a start and a step of two trainers side by side; return how fast the clock may run, and
    the seconds of the wall's clock that a node's start may take."""
    began_s = time.monotonic()
    trainers = [
        subprocess.Popen(
            [sys.executable, "train.py", "--steps", str(steps), "--output", "measured"],
            cwd=folder,
            stdout=subprocess.DEVNULL,
        )
        for steps in (1, 1 + MEASURED_STEPS)
    ]
    ends_s = []
    for trainer in trainers:
        if trainer.wait():
            sys.exit("train.py ended with an error")
        ends_s.append(time.monotonic() - began_s)
    trainer_s, whole_s = ends_s
    (folder / "measured").unlink(missing_ok=True)
    step_s = max(0.0, whole_s - trainer_s) / MEASURED_STEPS
    start_s = trainer_s / START_SHARE / ALLOWANCE
    by_start = max(START_S / start_s, min(SLOW_SPEED, SLOW_START_S / start_s))
    speed = max(1, int(min(MAX_SPEED, by_start, ALLOWANCE * STEP_S / max(step_s, 1e-3))))
    if speed < MAX_SPEED:
        minutes = 5 * 60 / speed
        print(
            f"This machine is busy: a trainer starts in {trainer_s:.0f} s, a step takes "
            f"{step_s:.2f} s. So the clock runs {speed} times as fast as the wall's, not "
            f"{MAX_SPEED}, and the demo takes up to {minutes:.0f} minutes."
        )
    return speed, start_s


def _set_times(job_file: Path, step_s: float, start_s: float) -> None:
    """Let a step last as long as the job file declares, on a clock of another speed; declare a
    longer start where it takes longer on that clock."""
    text = job_file.read_text(encoding="utf-8").replace('"0.2"', f'"{step_s:.3g}"')
    if start_s > START_S:
        text = text.replace("startup: 10m", f"startup: {start_s / 60:.0f}m")
    job_file.write_text(text, encoding="utf-8")


def _is_late(folder: Path) -> bool:
    """Whether the job was done, but after its deadline."""
    done = subprocess.run(
        [sys.executable, "-m", "costopt", *STATUS],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    rows = json.loads(done.stdout)["rows"] if done.returncode == 0 else ()
    return any(row["state"] == "finished" and row["on_time"] is False for row in rows)


def _costopt(arguments: tuple[str, ...], folder: Path, to: int | None = None) -> int:
    """Print a command and run it, its output ``to`` a file; Ctrl-C is the command's to handle."""
    print(f"\n$ costopt {shlex.join(arguments)}{' > report.html' if to else ''}", flush=True)
    command = [sys.executable, "-m", "costopt", *arguments]
    process = subprocess.Popen(command, cwd=folder, stdout=to)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


if __name__ == "__main__":
    sys.exit(main())
