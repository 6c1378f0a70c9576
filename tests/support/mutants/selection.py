"""A plugin of pytest that runs chosen tests in their order, and writes which begins and fails."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest

CHOSEN = {test: n for n, test in enumerate(json.loads(os.environ["COSTOPT_MUTANTS_CHOSEN"]))}
EVENTS = Path(os.environ["COSTOPT_MUTANTS_EVENTS"])


def _write(event: str, test: str) -> None:
    with EVENTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps([event, test]) + "\n")


def _check_product() -> None:
    """Raise pytest.UsageError where the product is not the mutated one of this folder."""
    for name in ("costopt", "costopt_sim"):
        found = importlib.util.find_spec(name)
        if found is None or not Path(str(found.origin)).is_relative_to(Path.cwd()):
            raise pytest.UsageError(f"{name} is not imported from {Path.cwd()}: {found}")
    _write("checked", "")


_check_product()  # before conftest.py, whose imports the mutant may break


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not chosen."""
    others = [item for item in items if item.nodeid not in CHOSEN]
    items[:] = sorted(
        (item for item in items if item.nodeid in CHOSEN), key=lambda item: CHOSEN[item.nodeid]
    )
    config.hook.pytest_deselected(items=others)


def pytest_runtest_logstart(nodeid: str) -> None:
    """Write that a test begins."""
    _write("begun", nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write that a test fails."""
    report = yield
    if report.failed:
        _write("failed", item.nodeid)
    return report
