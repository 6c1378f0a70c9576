"""``python -m tests.docs.refresh PAGE…`` writes what the commands of pages print into the pages.

Blocks are found and commands are run as in test_readme.py. What a page leaves out by hand, with a
line of "…", stays as it is and is named on stderr.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from tests.docs.test_readme import BLOCK, ELSEWHERE, prepare, run, without_progress
from tests.support.forked_commands import costopt_program


def refresh(page: str, root: Path) -> str:
    """Return the page with the output of each command of its console blocks."""
    parts, end = [], 0
    for block in BLOCK.finditer(page):
        parts += [page[end : block.start("text")], _outputs(block["text"], root)]
        end = block.end("text")
    return "".join([*parts, page[end:]])


def _outputs(text: str, root: Path) -> str:
    head, *steps = re.split(r"^\$ ", text, flags=re.MULTILINE)
    written = [head]
    for step in steps:
        lines = step.splitlines()
        last = next(index for index, line in enumerate(lines) if not line.endswith("\\"))
        command, printed = "\n".join(lines[: last + 1]), lines[last + 1 :]
        typed = command.replace("\\\n", "")
        if f"{typed} ".startswith(ELSEWHERE):
            written.append("\n".join([command, *printed]) + "\n")
            continue
        done = run(typed, root)
        if "…" in printed:
            sys.stderr.write(f"left as it is: $ {typed}\n")
            written.append("\n".join([command, *printed]) + "\n")
            continue
        new = [line.rstrip() for line in without_progress(done.stdout).rstrip().splitlines()]
        written.append("\n".join([command, *new]) + "\n")
    return "$ ".join(written)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder, costopt_program() as costopt:
            path, root = Path(name), prepare(Path(folder), costopt)
            path.write_text(refresh(path.read_text("utf-8"), root), encoding="utf-8")
