"""The map: which tests reach which lines of the product, and how long each test takes."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.mutants.blocks import IMPORTED, PRODUCT, Block, compile_product, file_name
from tests.support.mutants.mutation import Mutant, package_of

MAX_TESTS = 40
MAX_TESTS_S = 60.0


def copy_tree(source: Path, target: Path) -> None:
    """Copy the files of a checkout that git knows, or would add; those of ``target`` go first."""
    shutil.rmtree(target, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=source, capture_output=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.decode().split("\0")):
        if (source / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, target / name)


def environment(root: Path, **variables: str) -> dict[str, str]:
    """Return the environment of a run of pytest whose product is the one below ``root``."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**own, "PYTHONPATH": f"{root}:{root / 'providers'}", **variables}


def make_map(root: Path, folder: Path, arguments: Sequence[str]) -> int:
    """Run the tests in an instrumented copy, and write the map into a folder.

    Return 0, or pytest's status where it could not run the tests: then no map is written. A test
    that fails or is skipped is in the map, but runs no mutant.
    """
    tree, records = folder / "tree", folder / "records"
    shutil.rmtree(records, ignore_errors=True)
    records.mkdir(parents=True)
    copy_tree(root, tree)
    blocks = compile_product(tree, records)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.support.mutants.recorder", *arguments],
        cwd=tree, env=environment(tree, COSTOPT_MUTANTS_RECORDS=str(records)), check=False,
    )  # fmt: skip
    if done.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return done.returncode
    shutil.rmtree(folder / "product", ignore_errors=True)
    for name in PRODUCT:
        shutil.copytree(
            tree / name, folder / "product" / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    _write_map(folder, blocks, records)
    shutil.rmtree(tree)
    shutil.rmtree(records)
    return 0


def _write_map(folder: Path, blocks: Sequence[Block], records: Path) -> None:
    reached: dict[str, np.ndarray] = {}
    durations: dict[str, float] = {}
    for row in _rows(records):
        test = row["test"]
        found = np.frombuffer(zlib.decompress(base64.b64decode(row["reached"])), np.uint8)
        reached[test] = found | reached[test] if test in reached else found
        if test != IMPORTED and row["passed"]:
            durations[test] = row["duration_s"]
    by_file = {file_name(test): test for test in reached}
    for path in records.iterdir():
        if test_of_file := by_file.get(path.name.partition(".")[0]):
            reached[test_of_file] = reached[test_of_file] | np.fromfile(path, np.uint8)
    tests = sorted(reached)
    bits = np.packbits(np.array([reached[test] for test in tests], dtype=bool), axis=1)
    np.savez_compressed(folder / "reached.npz", reached=bits)
    found_map = {
        "tests": tests,
        "durations": durations,
        "blocks": [asdict(block) for block in blocks],
    }
    (folder / "map.json").write_text(json.dumps(found_map), "utf-8")


def _rows(records: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(records.glob("*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            yield json.loads(line)


TEST_FUNCTION = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)


def test_functions(root: Path) -> set[tuple[str, str]]:
    """Return the test functions of a checkout: file and name."""
    return {
        (path.relative_to(root).as_posix(), name)
        for path in (root / "tests").rglob("test_*.py")
        for name in TEST_FUNCTION.findall(path.read_text("utf-8"))
    }


def _function(test: str) -> tuple[str, str]:
    """Return file and name of the function of a test's id."""
    names = test.partition("[")[0].split("::")
    return names[0], names[-1]


class Reach:
    """Which tests of a checkout reach which lines, read from a map."""

    def __init__(self, folder: Path, root: Path) -> None:
        found = json.loads((folder / "map.json").read_text("utf-8"))
        self.durations: Mapping[str, float] = found["durations"]
        self._product = folder / "product"
        self._blocks = [Block(**{**row, "lines": tuple(row["lines"])}) for row in found["blocks"]]
        functions = test_functions(root)
        exist = [test == IMPORTED or _function(test) in functions for test in found["tests"]]
        self._tests = [test for test, exists in zip(found["tests"], exist, strict=True) if exists]
        self.unknown = functions - {_function(test) for test in found["tests"]}
        with np.load(folder / "reached.npz") as stored:
            bits = np.unpackbits(stored["reached"][exist], axis=1, count=len(self._blocks))
        self._reached = bits.view(bool)
        self._lines: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._functions: dict[str, list[int]] = defaultdict(list)
        for number, block in enumerate(self._blocks):
            self._lines[block.path] += [(line, number) for line in block.lines]
            if not block.is_import:
                self._functions[block.path].append(number)
        for lines in self._lines.values():
            lines.sort()

    def tests(self, mutant: Mutant) -> list[str]:
        """Return the tests that reach the line of a mutant and pass, the fastest first.

        What runs when a module is imported counts as reached by all that reach a function of the
        module or, where it has none, a function of a module that imports it.
        """
        lines = self._lines[mutant.path]
        place = bisect_right(lines, (mutant.line, len(self._blocks))) - 1
        if place < 0:
            return []
        number = lines[place][1]
        if not self._blocks[number].is_import:
            return self._passing([number])
        found = self._passing(self._functions[mutant.path])
        if found:
            return found
        return self._passing([n for p in self._importers(mutant.path) for n in self._functions[p]])

    def affordable(self, tests: Sequence[str]) -> list[str]:
        """Return the first of the tests, as many as there is time for; at least one."""
        chosen: list[str] = []
        total_s = 0.0
        for test in tests[:MAX_TESTS]:
            total_s += self.durations[test]
            if chosen and total_s > MAX_TESTS_S:
                break
            chosen.append(test)
        return chosen

    def shares(self) -> dict[str, tuple[float | None, float | None]]:
        """Return by package which share of its statements and of its branches is reached."""
        all_of: Counter[tuple[str, bool]] = Counter()
        reached: Counter[tuple[str, bool]] = Counter()
        reached_numbers = set(np.flatnonzero(self._reached.any(axis=0)))
        for number, block in enumerate(self._blocks):
            for package in (package_of(block.path), "all"):
                for is_branch, size in ((False, len(block.lines)), (True, block.is_branch)):
                    all_of[package, is_branch] += size
                    reached[package, is_branch] += size if number in reached_numbers else 0

        def share(package: str, is_branch: bool) -> float | None:
            number = all_of[package, is_branch]
            return reached[package, is_branch] / number if number else None

        packages = sorted({package for package, _ in all_of})
        return {name: (share(name, False), share(name, True)) for name in packages}

    def _passing(self, blocks: Sequence[int]) -> list[str]:
        rows = np.flatnonzero(self._reached[:, blocks].any(axis=1))
        tests = [self._tests[row] for row in rows if self._tests[row] in self.durations]
        return sorted(tests, key=lambda test: (self.durations[test], test))

    def _importers(self, path: str) -> list[str]:
        """Return the files of the product that import another one by its name."""
        module = path.removeprefix("providers/").removesuffix(".py").removesuffix("/__init__")
        package, _, name = module.replace("/", ".").rpartition(".")
        of_module = rf"from {re.escape(package)}\.{name} import"
        of_package = rf"from {re.escape(package)} import [^)]*?\b{name}\b"
        statement = re.compile(rf"^ *(?:{of_module}|{of_package})", re.MULTILINE)
        return [
            other
            for other in self._lines
            if statement.search((self._product / other).read_text("utf-8"))
        ]
