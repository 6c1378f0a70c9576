"""Figures that a change of the code must not change by accident: ``python -m benchmarks.figures``.

Plans, what-ifs and backtests of typed jobs, runs with all their events, and the published costs of
the "Can't Be Late" benchmark, compared with ``figures.json``. A figure that differs is printed, and
the status is 1. ``--write`` records the new ones: what changes, and why, belongs into the commit.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from benchmarks.figure_cases import backtests, plans, published, runs, what_ifs

FILE = Path(__file__).with_name("figures.json")
DIGITS = 9
"""Significant digits that are compared: sums of floats may differ in the last ones."""

Figures = dict[str, Mapping[str, object]]
"""By case: its figures by name."""
PARTS = {"plan": plans, "what-if": what_ifs, "backtest": backtests, "run": runs}
NEEDS_DATA = {"published": published}
"""What needs the recorded data that COSTOPT_DATA names."""


def compute(folder: Path) -> Figures:
    """Return all figures that can be computed here. Files of the jobs lie in ``folder``."""
    parts = PARTS | (NEEDS_DATA if os.environ.get("COSTOPT_DATA") else {})
    return {
        f"{part}: {name}": {label: _rounded(value) for label, value in figures.items()}
        for part, cases in parts.items()
        for name, figures in _announced(part, cases(folder))
    }


def _announced(
    part: str, cases: Iterable[tuple[str, Mapping[str, object]]]
) -> Iterator[tuple[str, Mapping[str, object]]]:
    for name, figures in cases:
        print(f"  {part}: {name}", file=sys.stderr, flush=True)
        yield name, figures


def _rounded(value: object) -> object:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def differences(
    before: Mapping[str, Mapping[str, object]], now: Mapping[str, Mapping[str, object]]
) -> Iterator[str]:
    """Yield a line for each figure that is not as before, and each case that came or went."""
    for case in before.keys() | now.keys():
        if case not in now:
            if not _lacks_data(case):
                yield f"{case}: gone"
        elif case not in before:
            yield f"{case}: new"
        else:
            old, new = before[case], now[case]
            yield from (
                f"{case}: {label} was {old.get(label)}, is {new.get(label)}"
                for label in dict.fromkeys((*old, *new))
                if old.get(label) != new.get(label)
            )


def _lacks_data(case: str) -> bool:
    """Return whether a case cannot be computed here."""
    return case.partition(":")[0] in NEEDS_DATA and not os.environ.get("COSTOPT_DATA")


def main() -> int:
    """Compare the figures with the recorded ones, or record them; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.figures", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--write", action="store_true", help="record the new figures")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        now = compute(Path(folder))
    before: Figures = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    lines = sorted(differences(before, now))
    for line in lines:
        print(line)
    if wanted.write:
        kept = {case: figures for case, figures in before.items() if _lacks_data(case)}
        FILE.write_text(json.dumps(kept | now, indent=1) + "\n", "utf-8")
        return 0
    if not os.environ.get("COSTOPT_DATA"):
        print("COSTOPT_DATA is unset: the published costs were not compared")
    print(f"{len(now)} cases, {len(lines)} differences")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
