"""The figures of the last benchmarks in ``results.json``, and the pages that quote them.

``python -m benchmarks.results`` writes the figures into README.md and docs/ between marks, which
are comments that no reader sees. In a line,
``<!-- bench: NAME | LABEL | FORMAT -->1.02<!-- end -->``
holds one figure in Python's format; on lines of their own, ``<!-- bench: NAME NAME -->`` and
``<!-- end -->`` hold all figures of these benchmarks. A test compares the pages with the file.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "benchmarks" / "results.json"
BLOCK = re.compile(r"(<!-- bench: ([\w ]+) -->\n).*?(^<!-- end -->)", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"(<!-- bench: (\w+) \| ([^|\n]+) \| (\S+) -->)[^\n]*?(<!-- end -->)")

Figure = tuple[str, float, str]
Results = Mapping[str, Mapping[str, Any]]
"""By benchmark: machine, date, commit, and its figures as [label, value, unit]."""


def read_results(path: Path = FILE) -> dict[str, Any]:
    """Return the file's results; none where it does not exist."""
    results: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return results


def save_figures(name: str, figures: Iterable[Figure], path: Path = FILE) -> None:
    """Replace one benchmark's figures; those of the others stay. Figures of none change nothing."""
    found = [[label, round(value, 6), unit] for label, value, unit in figures]
    if not found:
        return
    own = {
        "machine": _machine(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": _commit(),
        "figures": found,
    }
    text = json.dumps({**read_results(path), name: own}, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def figure_line(label: str, value: float, unit: str) -> str:
    """Return a figure as benchmarks print it."""
    return f"  {label:<72} {value:>10.3f} {unit}"


def insert_figures(text: str, results: Results) -> str:
    """Return a page with the results between its marks. Raise KeyError for an unknown figure."""
    text = BLOCK.sub(lambda m: m[1] + _block(m[2].split(), results) + m[3], text)
    return INLINE.sub(lambda m: m[1] + format(_value(m[2], m[3], results), m[4]) + m[5], text)


def pages() -> list[Path]:
    """Return the pages that may quote figures."""
    return [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]


def _block(names: Iterable[str], results: Results) -> str:
    return "".join(_section(name, results[name]) for name in names) + "\n"


def _section(name: str, own: Mapping[str, Any]) -> str:
    lines = [figure_line(*figure).rstrip() for figure in own["figures"]]
    source = f"{own['date']}, commit {own['commit']}; {own['machine']}"
    return "\n".join([f"\n**{name}** ({source})\n", "```", *lines, "```", ""])


def _value(name: str, label: str, results: Results) -> float:
    for known, value, _ in results[name]["figures"]:
        if known == label:
            return float(value)
    raise KeyError(f"benchmark {name} has no figure {label!r}")


def _machine() -> str:
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, {platform.machine()}, Python {platform.python_version()}"


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


def _changed() -> Iterator[Path]:
    results = read_results()
    for page in pages():
        text = page.read_text("utf-8")
        written = insert_figures(text, results)
        if written != text:
            page.write_text(written, encoding="utf-8")
            yield page


if __name__ == "__main__":
    for page in _changed():
        print(page.relative_to(ROOT), file=sys.stderr)
