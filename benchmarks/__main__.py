"""``python -m benchmarks [NAME…]``: run the named benchmarks, or all, and print their figures.

``python -m benchmarks fleet --size 500x168x50 --time-limit 10`` runs one size of the fleet.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterable, Sequence

NAMES = (
    "cli",
    "replay",
    "strategies",
    "energy",
    "forecast",
    "optimize",
    "fleet",
    "skypilot_choice",
)


def main(arguments: Sequence[str]) -> int:
    """Print name, value and unit of every figure."""
    wanted = _parser().parse_args(arguments)
    unknown = [name for name in wanted.names if name not in NAMES]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    for name in wanted.names or NAMES:
        print(f"\n{name}")
        for label, value, unit in _figures(name, wanted):
            print(f"  {label:<72} {value:>10.3f} {unit}", flush=True)
    return 0


def _figures(name: str, wanted: argparse.Namespace) -> Iterable[tuple[str, float, str]]:
    module = importlib.import_module(f"benchmarks.{name}")
    figures: Iterable[tuple[str, float, str]] = (
        module.run(wanted.size or module.SIZES, wanted.time_limit)
        if name == "fleet"
        else module.run()
    )
    return figures


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument(
        "--size",
        action="append",
        type=_size,
        help="of the fleet: pools x slots x jobs, as in 500x168x50",
    )
    parser.add_argument(
        "--time-limit", type=float, default=10.0, help="seconds for each plan of the fleet"
    )
    return parser


def _size(text: str) -> str:
    """``text``, if it is a size; raises ValueError."""
    return "x".join(map(str, importlib.import_module("benchmarks.fleet_size").size(text)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
