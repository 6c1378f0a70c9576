"""A plugin of pytest that writes which blocks each test reaches, and how long the test takes."""

from __future__ import annotations

import base64
import json
import os
import time
import zlib
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest

import costopt
from tests.support.mutants.blocks import IMPORTED, file_name

FOLDER = Path(os.environ["COSTOPT_MUTANTS_RECORDS"])
_failed_or_skipped: set[str] = set()


def _take_reached() -> bytes:
    reached: bytearray = vars(costopt)["__reached__"]
    taken = bytes(reached)
    reached[:] = bytes(len(reached))
    return taken


def _write(test: str, duration_s: float, passed: bool, reached: bytes) -> None:
    row = {
        "test": test,
        "duration_s": duration_s,
        "passed": passed,
        "reached": base64.b64encode(zlib.compress(reached, 1)).decode(),
    }
    with (FOLDER / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Write what the test reaches in this process; what it starts finds its file by a variable."""
    test = item.nodeid
    between = _take_reached()
    if any(between):
        _write(IMPORTED, 0.0, passed=True, reached=between)
    os.environ["COSTOPT_MUTANTS_TEST"] = file_name(test)
    begun_at = time.monotonic()
    try:
        return (yield)
    finally:
        del os.environ["COSTOPT_MUTANTS_TEST"]
        passed = test not in _failed_or_skipped
        _write(test, time.monotonic() - begun_at, passed, _take_reached())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember which tests do not pass."""
    report = yield
    if not report.passed:
        _failed_or_skipped.add(item.nodeid)
    return report


def _exit(status: int) -> None:
    """Exit, after the record of a child that a test has forked: it shares no memory with it."""
    name = os.environ.get("COSTOPT_MUTANTS_TEST")
    if name:
        with (
            suppress(OSError),  # another user's child may not write here
            (FOLDER / f"{name}.{os.getpid()}").open("wb") as file,
        ):
            file.write(_take_reached())
    _exit_now(status)


_exit_now = os._exit
os._exit = _exit  # type: ignore[assignment]
os.register_at_fork(after_in_child=_take_reached)
