"""Runs tests in worker processes that are forked after one collection.

Collecting imports all that the tests import: a forked worker has it from its birth, and shares the
memory. Tests of one ``worker_group`` run one after another in one worker. Tests that wait for
processes, browsers or servers have workers beside those that compute, so that the cores stay busy;
a worker whose own queue is empty takes from the other one.

A test that exceeds its time limit fails with the stacks of its processes. Its worker ends, too, and
another one goes on with the rest.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TextIO

import psutil
import pytest

TIMEOUT_S = 60.0
LONG_TIMEOUT_S = 300.0
"""For tests that are slow or wait: beside others, and on a busy machine, they take longer."""
WAITING = ("process", "browser", "postgres", "slurm", "cloud")
"""Markers of tests that leave the core idle for much of their time."""
CHUNK = 16
"""Tests of one file that a worker takes at a time."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the number of workers, and a random order."""
    parser.addoption(
        "--order-seed", type=int, metavar="SEED",
        help="shuffle the files, and the tests of each file",
    )  # fmt: skip
    parser.addoption(
        "--workers", type=int, default=0, metavar="N",
        help="run the tests in N forked processes, and in N + 1 more those that wait",
    )  # fmt: skip


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffle the tests, if they are to be."""
    seed = config.getoption("order_seed")
    if seed is not None:
        chance = random.Random(seed)
        places = {path: chance.random() for path in sorted({item.path for item in items})}
        items.sort(key=lambda item: (places[item.path], chance.random()))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the collected tests in workers, if there are to be any."""
    count = session.config.getoption("workers")
    if not count or session.config.option.collectonly or session.testsfailed:
        return None
    _Master(session).run(computing=count, waiting=count + 1)
    return True


@dataclass
class _Worker:
    pid: int
    connection: Connection
    stacks: TextIO
    waits: bool
    running: int | None = None
    """The test that it runs."""
    began_s: float = 0.0
    """When it began to, by the monotonic clock."""
    ahead: list[int] = field(default_factory=list)
    """Tests that it was given and has not begun."""


class _Master:
    """Hands tests to workers, and reports what they report."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._items = session.items
        self._waiting, self._computing = deque[list[int]](), deque[list[int]]()
        for unit in _units(session.items):
            waits = any(_is_marked(session.items[index], WAITING) for index in unit)
            (self._waiting if waits else self._computing).append(unit)
        self._workers: list[_Worker] = []
        # The folder of each worker's temporary files lies in this one's.
        self._folder: Path = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        self._forked = 0

    def run(self, *, computing: int, waiting: int) -> None:
        """Run all tests. Raise Session.Failed or Session.Interrupted where pytest asks to stop."""
        gc.freeze()  # a collection in a worker would write to, and so copy, the shared memory
        gc.set_threshold(50_000)  # collections of new objects take a twentieth of the time
        for number in range(computing + waiting):
            self._fork(waits=number >= computing)
        try:
            while self._workers:
                for ready in wait([worker.connection for worker in self._workers], timeout=1.0):
                    self._hear(next(each for each in self._workers if each.connection is ready))
                for worker in list(self._workers):
                    if worker.running is None:
                        continue
                    limit_s = _limit_s(self._items[worker.running]) * _slowness()
                    if time.monotonic() > worker.began_s + limit_s:
                        self._end_hung(worker)
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
                if self._session.shouldstop:
                    raise self._session.Interrupted(self._session.shouldstop)
        finally:
            for worker in self._workers:
                _kill_tree(worker.pid)

    def _fork(self, *, waits: bool) -> None:
        ours, theirs = Pipe()
        stacks = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the worker lives
        self._forked += 1
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                ours.close()
                for other in self._workers:
                    other.connection.close()
                if not waits:
                    os.nice(2)  # what waits should go on waiting soon
                faulthandler.register(signal.SIGUSR2, stacks, all_threads=True)
                _Runner(self._session, theirs, self._folder / f"worker-{self._forked}").run()
                code = 0
            finally:
                os._exit(code)
        theirs.close()
        self._workers.append(_Worker(pid, ours, stacks, waits))

    def _next(self, worker: _Worker) -> list[int] | None:
        first, second = self._computing, self._waiting
        if worker.waits:
            first, second = second, first
        queue = first or second
        return queue.popleft() if queue else None

    def _hear(self, worker: _Worker) -> None:
        kind, value = _receive(worker.connection)
        hook = self._session.config.hook
        if kind == "gone":
            self._replace(worker)
        elif kind == "ask":
            unit = self._next(worker)
            worker.ahead += unit or []
            with suppress(OSError):  # that it was killed is noticed at its next message
                worker.connection.send(unit)
        elif kind == "start":
            worker.ahead.remove(value)
            worker.running, worker.began_s = value, time.monotonic()
            item = self._items[value]
            hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        elif kind == "report":
            config = self._session.config
            report = hook.pytest_report_from_serializable(config=config, data=value)
            hook.pytest_runtest_logreport(report=report)
        elif kind == "end":
            worker.running = None
            item = self._items[value]
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _end_hung(self, worker: _Worker) -> None:
        stacks = _stacks(worker)
        _kill_tree(worker.pid)
        self._fail(worker, f"the test did not end within its time limit\n{stacks}")
        self._replace(worker)

    def _fail(self, worker: _Worker, why: str) -> None:
        """Report that the test that a worker ran has failed, else the next one given to it."""
        index = worker.ahead.pop(0) if worker.running is None else worker.running
        worker.running = None
        item = self._items[index]
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")
        self._session.config.hook.pytest_runtest_logreport(report=report)

    def _replace(self, worker: _Worker) -> None:
        """Let another worker go on, if this one ended before its tests did."""
        self._workers.remove(worker)
        worker.connection.close()
        with suppress(ChildProcessError):  # it was ended because it hung
            _, status = os.waitpid(worker.pid, 0)
            if status and (worker.running is not None or worker.ahead):
                code = os.waitstatus_to_exitcode(status)
                self._fail(worker, f"the worker ended with code {code}")
        worker.stacks.close()
        if worker.ahead:
            (self._waiting if worker.waits else self._computing).appendleft(worker.ahead)
        if self._computing or self._waiting:
            self._fork(waits=worker.waits)


def _receive(connection: Connection) -> tuple[str, Any]:
    try:
        return connection.recv()  # type: ignore[no-any-return]
    except (EOFError, OSError):
        return "gone", None


def _units(items: Sequence[pytest.Item]) -> Iterable[list[int]]:
    """Return the tests as they are handed out: by group, then slow ones one by one, then the rest,
    some tests of a file together."""
    groups: dict[str, list[int]] = {}
    slow, rest = list[list[int]](), list[list[int]]()
    for index, item in enumerate(items):
        group = _group(item)
        if group is not None:
            groups.setdefault(group, []).append(index)
        elif item.get_closest_marker("slow"):
            slow.append([index])
        elif rest and len(rest[-1]) < CHUNK and items[rest[-1][-1]].path == item.path:
            rest[-1].append(index)
        else:
            rest.append([index])
    return [*groups.values(), *slow, *rest]


def _group(item: pytest.Item) -> str | None:
    """Return the group of a test: its marker's, or its file if it shares fixtures with others."""
    marker = item.get_closest_marker("worker_group")
    if marker is not None:
        return str(marker.args[0])
    fixtures = item._fixtureinfo.name2fixturedefs.values()  # type: ignore[attr-defined]
    shared = any(each[-1].scope == "module" for each in fixtures)
    return str(item.path) if shared else None


def _is_marked(item: pytest.Item, names: Iterable[str]) -> bool:
    return any(item.get_closest_marker(name) for name in names)


def _limit_s(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    if marker is not None:
        return float(marker.args[0])
    return LONG_TIMEOUT_S if _is_marked(item, ("slow", *WAITING)) else TIMEOUT_S


def _slowness() -> float:
    """Return how many times as long a test may take on a machine as busy as this one is now.

    The workers alone are nearly two processes for each core.
    """
    return max(1.0, os.getloadavg()[0] / (2 * (os.cpu_count() or 1)))


class _Runner:
    """Runs the tests that the master hands out, in a worker."""

    def __init__(self, session: pytest.Session, connection: Connection, folder: Path) -> None:
        self._session = session
        self._config = session.config
        self._connection = connection
        folder.mkdir()
        self._config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
        random.seed()  # else all workers would draw the same numbers

    def run(self) -> None:
        """Run tests until there are no more."""
        self._take_over_output()
        self._config.pluginmanager.register(self, "forked-runner")
        pending = deque(self._ask())
        while pending:
            index = pending.popleft()
            if not pending:
                pending.extend(self._ask())  # the next test decides which fixtures stay
            following = self._session.items[pending[0]] if pending else None
            self._send("start", index)
            item = self._session.items[index]
            self._config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            self._send("end", index)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a report to the master."""
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._send("report", data)

    def _take_over_output(self) -> None:
        """Let nothing of this process reach the master's terminal or its captured output."""
        manager = self._config.pluginmanager
        terminal = manager.getplugin("terminalreporter")
        if terminal is not None:
            manager.unregister(terminal)
        capture = manager.getplugin("capturemanager")
        if capture is not None and capture.is_globally_capturing():
            capture.stop_global_capturing()
            capture.start_global_capturing()

    def _ask(self) -> list[int]:
        self._send("ask", None)
        return self._connection.recv() or []

    def _send(self, kind: str, value: Any) -> None:
        self._connection.send((kind, value))


def _stacks(worker: _Worker) -> str:
    """Return the stacks of a worker and of all processes below it."""
    root = psutil.Process(worker.pid)
    os.kill(worker.pid, signal.SIGUSR2)
    time.sleep(1.0)  # it writes them itself
    found = []
    for process in root.children(recursive=True):
        with suppress(psutil.Error, OSError, subprocess.TimeoutExpired):
            found.append(f"process {process.pid}: {' '.join(process.cmdline())[:200]}")
            command = ["py-spy", "dump", "--nonblocking", "--pid", str(process.pid)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
            found.append(done.stdout or done.stderr)
    worker.stacks.seek(0)
    return "\n".join([worker.stacks.read(), *found])


def _kill_tree(pid: int) -> None:
    with suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in [*root.children(recursive=True), root]:
            with suppress(psutil.Error):
                process.kill()
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)
