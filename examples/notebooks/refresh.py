"""Executes the notebooks of this folder; their pages of the site are made of what is stored here.

``python examples/notebooks/refresh.py`` stores each notebook with its outputs. With ``--check``
nothing is written: it exits with 1 and names what differs from what is stored. Outputs hold neither
paths of a machine nor times of execution.
``--ledger`` first replays a job on the bundled market and stores its events as
state/ledger.sqlite, which read_a_ledger.ipynb reads.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

import costopt as co
from costopt.ledger.base import open_ledger

HERE = Path(__file__).resolve().parent
LEDGER = HERE / "state" / "ledger.sqlite"
TIMEOUT_S = 300


def execute(path: Path) -> Any:
    """Return the notebook with its outputs, executed beside a copy of this folder's files."""
    book = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(HERE, folder, dirs_exist_ok=True)
        socket = str(Path(folder) / "kernel")
        manager = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=socket)
        place = {"metadata": {"path": folder}}
        NotebookClient(book, km=manager, timeout=TIMEOUT_S, resources=place).execute()
    for cell in book.cells:
        cell.metadata = {}
        for output in cell.get("outputs", ()):
            output.pop("execution_count", None)
            output.metadata = {}
    book.metadata = {"language_info": {"name": "python"}}
    return book


def write_ledger() -> None:
    """Store the ledger of a job that was interrupted several times."""
    market = co.read_market("sample")
    job = co.load_job(HERE / "job.yaml", now=market.starts_at)
    job = replace(job, checkpoint=replace(job.checkpoint, uri="gs://example/checkpoints"))
    result = co.backtest(job, "cheapest", market, starts=16)
    found = [(score.interruptions or 0, n) for n, (t, score) in enumerate(result.scores)
             if t.label == "cheapest"]  # fmt: skip
    trial, _ = result.scores[max(found)[1]]
    LEDGER.unlink(missing_ok=True)
    LEDGER.parent.mkdir(exist_ok=True)
    with open_ledger(LEDGER) as ledger:
        ledger.append(*(each.event for each in result.config.rehearse(trial, explain=True).events))


def main(arguments: Sequence[str]) -> int:
    """Store the notebooks, or with --check compare them. Return the exit code."""
    os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    if "--ledger" in arguments:
        write_ledger()
    found = {
        path: json.dumps(execute(path), indent=1, ensure_ascii=False, sort_keys=True) + "\n"
        for path in sorted(HERE.glob("*.ipynb"))
    }
    if "--check" not in arguments:
        for path, text in found.items():
            path.write_text(text, encoding="utf-8")
        return 0
    stale = [path for path, text in found.items() if path.read_text("utf-8") != text]
    for path in stale:
        sys.stderr.write(f"{path.relative_to(HERE.parents[1])} differs: make notebooks\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
