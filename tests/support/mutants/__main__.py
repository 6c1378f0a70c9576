"""Small faults put into the product, one at a time: which of them do the tests notice?

``python -m tests.support.mutants map -- ARGUMENTS`` runs pytest with the arguments, and notes which
tests reach which lines. ``run`` makes mutants of the product, the same ones for the same seed and
lines, runs each against the fastest tests that reach its line, and prints what became of them by
package. ``compare`` prints two reports of ``run`` side by side.
"""

from __future__ import annotations

import argparse
import queue
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from tests.support.mutants.mutation import Mutant, draw, find_mutants
from tests.support.mutants.reach import Reach, make_map
from tests.support.mutants.report import Report, Row, compare, describe
from tests.support.mutants.trial import Outcome, Workplace

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "build" / "mutants"
MIN_TIMEOUT_S = 90.0
SLOWNESS = 5.0
"""How many times as long as in the map the tests of a mutant may take."""


class Trials:
    """The trials of mutants against the tests of a checkout, some at a time."""

    def __init__(self, folder: Path, root: Path, at_a_time: int) -> None:
        self.reach = Reach(folder, root)
        self._root = root
        self._at_a_time = at_a_time
        self._workplaces: queue.Queue[Workplace] = queue.Queue()
        for number in range(at_a_time):
            self._workplaces.put(Workplace(root, folder / f"workplace-{number}"))

    def run(self, mutants: list[Mutant]) -> Iterator[Row]:
        """Yield what becomes of each mutant, in their order."""
        with ThreadPoolExecutor(self._at_a_time) as pool:
            yield from pool.map(self._try, mutants)

    def _try(self, mutant: Mutant) -> Row:
        reaching = self.reach.tests(mutant)
        tests = self.reach.affordable(reaching)
        here = _find(self._root, mutant)
        if here is None:
            outcome = Outcome("gone")
        elif not tests:
            outcome = Outcome("unreached")
        else:
            workplace = self._workplaces.get()
            timeout_s = MIN_TIMEOUT_S + SLOWNESS * sum(self.reach.durations[t] for t in tests)
            try:
                outcome = workplace.try_mutant(here, tests, timeout_s)
            finally:
                self._workplaces.put(workplace)
        return Row(
            key=mutant.key, package=mutant.package, place=f"{mutant.path}:{mutant.line}",
            old=mutant.old, new=mutant.new, reached_by=len(reaching), ran=outcome.ran,
            status=outcome.status, noticed_by=outcome.noticed_by,
        )  # fmt: skip


def _find(root: Path, mutant: Mutant) -> Mutant | None:
    """Return the same mutant in another state of the product; None if its line has changed."""
    path = root / mutant.path
    source = path.read_bytes() if path.exists() else b""
    same = (each for each in find_mutants(mutant.path, source) if each.key == mutant.key)
    return next(same, None)


def _run(options: argparse.Namespace) -> None:
    trials = Trials(options.map, options.tree.resolve(), options.at_a_time)
    if trials.reach.unknown:
        click.echo(f"{len(trials.reach.unknown)} test functions are not in the map", err=True)
    rows = []
    for row in trials.run(draw(options.map / "product", options.seed, options.count)):
        click.echo(row.describe(), err=True)
        rows.append(row)
    report = Report(options.seed, rows, trials.reach.shares())
    if options.report:
        report.write(options.report)
    click.echo("\n".join(describe(report)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.support.mutants", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    mapping = commands.add_parser("map", help="run the tests, and note which lines each reaches")
    mapping.add_argument("arguments", nargs="*", metavar="ARGUMENTS", help="of pytest, after --")
    run = commands.add_parser("run", help="try mutants")
    run.add_argument("--seed", type=int, default=0, help="of the choice of mutants")
    run.add_argument("--count", type=int, default=100, help="how many mutants")
    run.add_argument("--tree", type=Path, default=ROOT, help="the checkout whose tests run")
    run.add_argument("--at-a-time", type=int, default=2, help="how many mutants at a time")
    run.add_argument("--report", type=Path, help="where the result is written as JSON")
    for command in (mapping, run):
        command.add_argument("--map", type=Path, default=FOLDER, help="the folder of the map")
    comparison = commands.add_parser("compare", help="print two reports side by side")
    comparison.add_argument("before", type=Path)
    comparison.add_argument("after", type=Path)
    return parser


def main() -> int:
    """Run the command, and return the exit status."""
    options = _parser().parse_args()
    match options.command:
        case "map":
            return make_map(ROOT, options.map.resolve(), options.arguments)
        case "run":
            options.map = options.map.resolve()
            _run(options)
        case "compare":
            click.echo("\n".join(compare(Report.read(options.before), Report.read(options.after))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
