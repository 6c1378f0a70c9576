"""Runs of tests against a mutant, in a copy of the tree."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.mutants.mutation import Mutant
from tests.support.mutants.reach import copy_tree, environment


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a mutant: killed, living or unreached, and by which test it was noticed."""

    status: str
    ran: int = 0
    noticed_by: str = ""


@dataclass(frozen=True, slots=True)
class _Run:
    exit_status: int | None
    """None after a timeout."""
    last_test: str


class Workplace:
    """A copy of a checkout where one mutant at a time is tried."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._folder = folder
        self._tree = folder / "tree"
        copy_tree(root, self._tree)
        self._passing: set[str] = set()
        self._failing: set[str] = set()

    def try_mutant(self, mutant: Mutant, tests: Sequence[str], timeout_s: float) -> Outcome:
        """Run the tests until one notices the mutant that does not fail without it, too."""
        chosen = [test for test in tests if test not in self._failing]
        source = (self._tree / mutant.path).read_bytes()
        while chosen:
            mutant.apply(self._tree)
            try:
                run = self._run(chosen, timeout_s)
            finally:
                (self._tree / mutant.path).write_bytes(source)
            if run.exit_status == pytest.ExitCode.NO_TESTS_COLLECTED:
                break
            if run.exit_status == 0:
                return Outcome("living", len(chosen))
            culprit = run.last_test or chosen[0]
            if self._passes_without(culprit, timeout_s):
                after = " (timeout)" if run.exit_status is None else ""
                return Outcome("killed", len(chosen), culprit + after)
            chosen.remove(culprit)
        return Outcome("unreached")

    def _passes_without(self, test: str, timeout_s: float) -> bool:
        """Whether a test passes where nothing is mutated; each is tried once."""
        if test not in self._passing | self._failing:
            status = self._run([test], timeout_s).exit_status
            (self._passing if status == 0 else self._failing).add(test)
        return test in self._passing

    def _run(self, tests: Sequence[str], timeout_s: float) -> _Run:
        """Run tests until the first failure. Raise RuntimeError if they use another product."""
        events, output = self._folder / "events.jsonl", self._folder / "output.txt"
        events.unlink(missing_ok=True)
        variables = {
            "COSTOPT_MUTANTS_CHOSEN": json.dumps(tests),
            "COSTOPT_MUTANTS_EVENTS": str(events),
            "COSTOPT_MUTANTS_WORKPLACE": str(self._folder),
        }
        command = [
            *(sys.executable, "-m", "pytest", "-q", "--exitfirst", "--hypothesis-seed=0"),
            *("-p", "tests.support.mutants.selection", "-p", "no:cacheprovider"),
            f"--basetemp={self._folder / 'temporary'}",
            *sorted({test.partition("::")[0] for test in tests}),
        ]
        with output.open("wb") as file:
            process = subprocess.Popen(
                command, cwd=self._tree, env=environment(self._tree, **variables), stdout=file,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            try:
                status: int | None = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                process.kill()
                process.wait()
                self._kill_rest()
        rows = [json.loads(line) for line in _lines(events)]
        if not rows:
            raise RuntimeError(f"pytest did not begin: {output.read_text('utf-8', 'replace')}")
        return _Run(status, rows[-1][1])

    def _kill_rest(self) -> None:
        """Kill the processes that the tests have started and that still run."""
        mark = f"COSTOPT_MUTANTS_WORKPLACE={self._folder}\0".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (entry / "environ").read_bytes() + b"\0":
                    os.kill(int(entry.name), signal.SIGKILL)
            except (OSError, ValueError):
                continue


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines() if path.exists() else []
