"""The main job, end to end: a market takes nodes away, and the job is done in time all the same.

Each step is a command that you can type yourself; it is printed before it runs.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

HERE = Path(__file__).parent
FILES = ("job.yaml", "train.py", "model.py", "corpus.py")
PLAN = ("plan", "job.yaml", "--market", "market.parquet")
RUN = (
    "run", "job.yaml", "--policy", "cheapest", "--market", "market.parquet", "--speed", "100",
    "--notice", "120", "--tick", "60", "--state-dir", "state", "--apply",
)  # fmt: skip
REPORT = ("report", "finetune", "--state-dir", "state", "--to", "report.html")


def main() -> int:
    """Run the demo in a fresh folder; the exit code of the first command that fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", default="typical", help="of costopt market generate")
    parser.add_argument("--seed", type=int, default=0, help="of costopt market generate")
    options = parser.parse_args()
    folder = Path("demo-output") / f"{datetime.now():%Y%m%d-%H%M%S}"  # noqa: DTZ005 - a folder's name
    folder.mkdir(parents=True)
    for name in FILES:
        shutil.copy(HERE / name, folder)
    for arguments in (_market(options.profile, options.seed), PLAN, RUN, REPORT):
        print(f"\n$ costopt {shlex.join(arguments)}", flush=True)
        code = _costopt(arguments, folder)
        if code != 0:
            return code
    print(f"\nReport: {(folder / 'report.html').resolve()}")
    print(f"Weights: {(folder / 'output' / 'weights.sha256').read_text().strip()}")
    return 0


def _market(profile: str, seed: int) -> tuple[str, ...]:
    """Return the command that generates the demo's market."""
    return (
        "market", "generate", "--out", "market.parquet", "--provider", "aws", "--region",
        "us-east-1", "--instance-type", "g4dn.xlarge", "--hours", "24", "--profile", profile,
        "--seed", str(seed), "--tick", "60",
    )  # fmt: skip


def _costopt(arguments: tuple[str, ...], folder: Path) -> int:
    """Run one command; Ctrl-C is the command's to handle."""
    process = subprocess.Popen([sys.executable, "-m", "costopt", *arguments], cwd=folder)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


if __name__ == "__main__":
    sys.exit(main())
