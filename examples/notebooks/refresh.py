"""Executes the notebooks of this folder, and writes them as pages of the site.

``python examples/notebooks/refresh.py`` stores each notebook with its outputs, and its page with
pictures in docs/notebooks/. With ``--check`` nothing is written: it exits with 1 and names what
differs from what is stored. Outputs hold neither paths of a machine nor times of execution.
``--ledger`` first replays a job on the bundled market and stores its events as
state/ledger.sqlite, which read_a_ledger.ipynb reads.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

import costopt as co
from costopt.ledger.base import open_ledger

HERE = Path(__file__).resolve().parent
PAGES = HERE.parents[1] / "docs" / "notebooks"
LEDGER = HERE / "state" / "ledger.sqlite"
TIMEOUT_S = 300
Cell = Mapping[str, Any]


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


def page(book: Any, name: str) -> tuple[str, dict[str, str]]:
    """Return the notebook as Markdown, and its pictures by file name."""
    pictures: dict[str, str] = {}
    parts = [f"<!-- Written by examples/notebooks/refresh.py from {name}.ipynb. -->"]
    for cell in book.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        parts += _outputs(cell.outputs, name, pictures)
    parts.append(
        f"The notebook is `examples/notebooks/{name}.ipynb`; the tests execute it with each change."
    )
    return "\n\n".join(parts) + "\n", pictures


def _outputs(outputs: Sequence[Cell], name: str, pictures: dict[str, str]) -> Iterator[str]:
    for output in outputs:
        data = output.get("data", {})
        if "image/svg+xml" in data:
            file = f"{name}-{len(pictures) + 1}.svg"
            pictures[file] = data["image/svg+xml"]
            alt = re.search(r"<title>(.*?)</title>", pictures[file])
            yield f"![{alt[1] if alt else name}]({file})"
        elif "text/html" in data:
            yield re.sub(r"\n\s*\n", "\n", data["text/html"])
        else:
            text = output.get("text") or data.get("text/plain", "")
            yield f"```text\n{text.rstrip()}\n```"


def files(path: Path) -> dict[Path, str]:
    """Return what is stored of a notebook, by file."""
    book = execute(path)
    text, pictures = page(book, path.stem)
    stored = json.dumps(book, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    found = {path: stored, PAGES / f"{path.stem}.md": text}
    return found | {PAGES / file: svg for file, svg in pictures.items()}


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
    found: dict[Path, str] = {}
    for path in sorted(HERE.glob("*.ipynb")):
        found |= files(path)
    if "--check" not in arguments:
        for path, text in found.items():
            path.write_text(text, encoding="utf-8")
        return 0
    stale = [
        path
        for path, text in found.items()
        if not path.is_file() or path.read_text("utf-8") != text
    ]
    for path in stale:
        sys.stderr.write(f"{path.relative_to(HERE.parents[1])} differs: make notebooks\n")
    return 1 if stale else 0


def _stored(path: Path) -> str:
    return path.read_text("utf-8") if path.is_file() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
