"""Runs commands and the Python API of an installed costopt, and parses what they print.

Needs nothing beside costopt: ``python parse_outputs.py FOLDER`` checks the environment of that
Python, which ``make fresh`` installs without constraints. ``preamble`` is Python code that runs
before the program, in its process.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

COMMAND_LINE = """
from costopt.cli.main import main
main()
"""
API_AND_COMMANDS = """
import json
import os
import sys
import costopt as co
from costopt.cli.main import main
market = co.read_market("sample")
result = co.plan(co.load_job("job.yaml", now=market.first_priced_at), "cheapest", market=market)
json.dump({"usd": result.forecast.usd_p50}, sys.stdout)
sys.stdout.flush()
for number, arguments in enumerate(json.loads(sys.argv[1])):
    if os.fork() == 0:
        os.dup2(os.open(f"{number}.out", os.O_WRONLY | os.O_CREAT), 1)
        sys.argv[1:] = arguments
        main()
    if os.wait()[1]:
        sys.exit(f"{arguments} failed")
"""
"""What is imported for the API need not be imported again for each command."""
PLAN = ("plan", "job.yaml", "--market", "sample", "--top", "1")
WHAT_IF = (
    "what-if", "job.yaml", "--market", "sample", "--policies", "cheapest", "--points", "0",
)  # fmt: skip


def stdout_of(program: str, folder: Path, *arguments: str) -> str:
    """Return what a Python program prints. Raise RuntimeError with its errors if it fails."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stderr}")
    return done.stdout


def _parse_json(text: str) -> None:
    json.loads(text)


def _parse_csv(text: str) -> None:
    header, *rows = csv.reader(io.StringIO(text))
    if not rows or any(len(row) != len(header) for row in rows):
        raise ValueError(f"not a table: {text[:200]}")


def _parse_html(text: str) -> None:
    if not text.lower().startswith("<!doctype html>") or not text.rstrip().endswith("</html>"):
        raise ValueError(f"not a page: {text[:200]}")


def _parse_markdown(text: str) -> None:
    if not text.startswith("### "):
        raise ValueError(f"not a heading first: {text[:200]}")


FORMS: dict[str, Callable[[str], None]] = {
    "json": _parse_json,
    "csv": _parse_csv,
    "html": _parse_html,
    "md": _parse_markdown,
}


def parse_outputs(folder: Path, preamble: str = "") -> None:
    """Parse the outputs of plan, what-if and the Python API in every form, in an empty folder.

    Raise ValueError or RuntimeError for one that is not of its form.
    """
    stdout_of(COMMAND_LINE, folder, "init")
    commands = {
        (*command, "-o", form): parse
        for command in (PLAN, WHAT_IF)
        for form, parse in FORMS.items()
    }
    _parse_json(stdout_of(preamble + API_AND_COMMANDS, folder, json.dumps([*commands])))
    for number, parse in enumerate(commands.values()):
        parse((folder / f"{number}.out").read_text("utf-8"))


if __name__ == "__main__":
    parse_outputs(Path(sys.argv[1]))
