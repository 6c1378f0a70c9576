"""``python -m benchmarks [NAME…]``: run the named benchmarks, or all, and print their figures.

``python -m benchmarks fleet --size 500x168x50 --time-limit 10`` runs one size of the fleet,
``python -m benchmarks deadlines --sample 0 --results scores.jsonl`` the whole deadline benchmark.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.results import figure_line, save_figures

NAMES = (
    "cli",
    "replay",
    "strategies",
    "default_policy",
    "calibration",
    "energy",
    "forecast",
    "optimize",
    "fleet",
    "fleet_replay",
    "fleet_overflow",
    "fleet_scale",
    "pollux",
    "skypilot_choice",
    "deadlines",
    "zones",
    "leaderboard",
    "generated",
    "spread_gangs",
    "shared_limits",
    "checkpoints",
    "deltas",
    "sharded",
    "sharded_model",
    "elastic",
    "daemon",
    "daemon_ledger",
)
REPLAYS = ("calibration", "deadlines", "zones", "generated", "spread_gangs")
"""Those that run many trials, in processes and resumably."""


def main(arguments: Sequence[str]) -> int:
    """Print name, value and unit of every figure."""
    wanted = _parser().parse_args(arguments)
    unknown = [name for name in wanted.names if name not in NAMES]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    for name in wanted.names or NAMES:
        print(f"\n{name}")
        printed = []
        for figure in _figures(name, wanted):
            print(figure_line(*figure), flush=True)
            printed.append(figure)
        if wanted.save:
            save_figures(name, printed)
    return 0


def _figures(name: str, wanted: argparse.Namespace) -> Iterable[tuple[str, float, str]]:
    module = importlib.import_module(f"benchmarks.{name}")
    figures: Iterable[tuple[str, float, str]]
    if name == "fleet":
        figures = module.run(wanted.size or module.SIZES, wanted.time_limit)
    elif name in ("checkpoints", "daemon_ledger", "sharded"):
        figures = module.run(wanted.size)
    elif name == "pollux":
        figures = module.run(wanted.pollux)
    elif name == "leaderboard":
        figures = module.run(wanted.traces, _effort(wanted))
    elif name in REPLAYS:
        figures = module.run(_effort(wanted))
    else:
        figures = module.run()
    return figures


def _effort(wanted: argparse.Namespace) -> object:
    effort = importlib.import_module("benchmarks.trials").Effort
    given = {"sample": wanted.sample, "jobs": wanted.jobs, "results": wanted.results}
    return effort(**{name: value for name, value in given.items() if value is not None})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument(
        "--size",
        action="append",
        type=_size,
        help="of the fleet: pools x slots x jobs, as in 500x168x50; of a checkpoint: its MB; "
        "of the daemon's ledger: its millions of events",
    )
    parser.add_argument(
        "--time-limit", type=float, default=10.0, help="seconds for each plan of the fleet"
    )
    parser.add_argument("--sample", type=int, help="windows of those with trials; 0 is all")
    parser.add_argument("--jobs", type=int, help="processes of deadlines and zones")
    parser.add_argument(
        "--results", type=Path, help="keeps the runs of deadlines and zones, to go on with later"
    )
    parser.add_argument(
        "--pollux", type=Path, metavar="FOLDER",
        help="the folder simulator/ of github.com/petuum/adaptdl, branch osdi21-artifact",
    )  # fmt: skip
    parser.add_argument(
        "--traces", type=Path, metavar="FOLDER",
        help="windows of the public leaderboards; benchmarks/leaderboard.py says where they are",
    )  # fmt: skip
    parser.add_argument(
        "--save", action="store_true", help="write the figures into benchmarks/results.json"
    )
    return parser


def _size(text: str) -> str:
    """``text``, if it is a size; raises ValueError."""
    if text.isdecimal():
        return text
    return "x".join(map(str, importlib.import_module("benchmarks.fleet_size").size(text)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
