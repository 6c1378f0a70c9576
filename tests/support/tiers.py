"""Which tests need more than this process: markers found from code and fixtures, and their check.

A test that starts a process in code of the tests is marked by what its functions refer to. One
whose product code starts a process carries the marker ``process`` in its file; the quick tier,
which leaves processes out, fails it otherwise.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from functools import cache
from types import CodeType, FunctionType
from typing import Any

import pytest

NEEDS = {
    "postgres": ("postgres", "process"),
    "browser": ("browser", "process"),
    "slurm": ("slurm", "process"),
    "ceph": ("ceph", "process"),
    "cbc": ("process",),
    "aws_server": ("cloud",),
    "gcp_server": ("cloud",),
    "kubernetes": ("cloud", "process"),
    "kubernetes_server": ("cloud", "process"),
    "s3": ("cloud",),
    "gcs": ("cloud",),
    "gs": ("cloud",),
}
"""Markers by fixture, or by a parameter that asks for it."""
ALONE = {"kubernetes": "kubernetes_server", "kubernetes_server": "kubernetes_server"}
"""Servers by what asks for them: one worker starts each, not every one."""
STARTERS = frozenset({"subprocess", "multiprocessing", "run_in_processes", "Popen", "fork"})
EVENTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"})
started: list[str] = []
"""The processes that the current test has started, as the interpreter's audit events name them."""


def mark(items: list[pytest.Item]) -> None:
    """Add to each test the markers of what it needs: a process, browser, database, Slurm, cloud."""
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        needs = _needs(item)
        markers = {name for each in needs for name in NEEDS.get(each, ())}
        fixtures = item._fixtureinfo.name2fixturedefs.values()
        functions = [item.function, *(each[-1].func for each in fixtures)]
        if any(starts_process(each) for each in functions):
            markers.add("process")
        for name in sorted(markers):
            item.add_marker(name)
        for server in _servers(item):
            item.add_marker(pytest.mark.worker_group(server))


def end_servers(item: pytest.Item, following: pytest.Item | None) -> None:
    """End a server that the next test does not use: idle, it would take time until the end."""
    if not isinstance(item, pytest.Function):
        return
    for server in _servers(item) - _servers(following):
        for fixture in item.session._fixturemanager.getfixturedefs(server, item) or ():
            fixture.finish(item._request)  # type: ignore[arg-type]


def _servers(item: pytest.Item | None) -> set[str]:
    needs = _needs(item) if isinstance(item, pytest.Function) else set()
    return {ALONE[each] for each in needs & ALONE.keys()}


def _needs(item: pytest.Function) -> set[str]:
    """Fixtures, and the values of parameters as the id names them: "postgres" asks for one."""
    parameters = item.callspec.id.split("-") if hasattr(item, "callspec") else []
    return {*item._fixtureinfo.name2fixturedefs, *parameters}


def check_unmarked(item: pytest.Item) -> None:
    """Fail a test without the marker ``process`` that has started one."""
    if started and item.get_closest_marker("process") is None:
        pytest.fail(f"starts a process ({started[0]}): mark it with pytest.mark.process")


def watch_processes() -> None:
    """Record the starts of processes from now on; an audit hook stays until the process ends."""
    sys.addaudithook(_record)


def _record(event: str, arguments: tuple[Any, ...]) -> None:
    if event in EVENTS:
        started.append(str(arguments[0]) if arguments else event)


def starts_process(function: Any) -> bool:
    """Whether a function, or one of the tests' own that it refers to, starts a process."""
    return any(_starts(each) for each in _reached(function))


@cache
def _reached(function: Any) -> frozenset[FunctionType]:
    found: set[FunctionType] = set()
    waiting = [function]
    while waiting:
        each = _plain(waiting.pop())
        if isinstance(each, type):
            waiting.extend(_plain(member) for member in vars(each).values())
        elif isinstance(each, FunctionType) and each not in found:
            found.add(each)
            waiting.extend(_own(each))
    return frozenset(found)


def _plain(value: Any) -> Any:
    """The function below decorators, properties and bound methods."""
    if isinstance(value, property):
        value = value.fget
    value = inspect.unwrap(getattr(value, "__func__", value))
    return getattr(getattr(value, "hypothesis", None), "inner_test", value)


def _own(function: FunctionType) -> Iterator[Any]:
    """The functions and classes of the tests that a function names."""
    for name in _names(function.__code__):
        value = function.__globals__.get(name)
        module = getattr(value, "__module__", None)
        if isinstance(module, str) and module.startswith("tests."):
            yield value


def _starts(function: FunctionType) -> bool:
    return not STARTERS.isdisjoint(_names(function.__code__))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
