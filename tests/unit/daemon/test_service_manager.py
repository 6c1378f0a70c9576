"""What a service manager hears of the daemon, and that a daemon that hangs ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from costopt.daemon.reader import is_alive
from costopt.daemon.watch.service_manager import ServiceManager
from costopt.market.history_file import write_history
from tests.support.daemon_fixtures import DaemonScene
from tests.support.live_run import CALM, PATIENCE_S, UNINTERRUPTIBLE, history
from tests.support.node_folder import variables

HANGS = """
import os, time
from costopt.daemon.watch.service_manager import ServiceManager

manager = ServiceManager(os.environ)
for _ in range(20):
    manager.report_alive()
    time.sleep(0.05)
print("lived", flush=True)
{then}
"""


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        link.bind(str(tmp_path / "notify"))
        link.settimeout(PATIENCE_S)
        yield link


def address(link: socket.socket) -> str:
    name = link.getsockname()
    assert isinstance(name, str)
    return name


def test_it_hears_of_readiness_life_and_the_end(manager: socket.socket) -> None:
    reports = ServiceManager({"NOTIFY_SOCKET": address(manager), "WATCHDOG_USEC": "400000"})
    reports.report_ready()
    for _ in range(10):
        reports.report_alive()
    reports.report_stopping()
    reports.report_alive()
    heard = [manager.recv(100).decode() for _ in range(3)]
    assert heard == ["READY=1", "WATCHDOG=1", "STOPPING=1"]
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(100)


def test_life_is_reported_several_times_per_limit(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    reports = ServiceManager({"NOTIFY_SOCKET": address(manager), "WATCHDOG_USEC": "120000000"})
    manager.setblocking(False)
    heard = 0
    for now_s in range(120):  # noqa: B007
        reports.report_alive()
        try:
            heard += manager.recv(100) == b"WATCHDOG=1"
        except BlockingIOError:
            continue
    assert 2 <= heard <= 10


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": ""},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": str(os.getpid() + 1)},
        {"NOTIFY_SOCKET": "/nowhere/at/all", "WATCHDOG_USEC": "1000"},
        {"NOTIFY_SOCKET": "@costopt-nowhere", "WATCHDOG_USEC": "1000"},
    ],
)
def test_without_a_manager_that_listens_nothing_happens(environment: dict[str, str]) -> None:
    reports = ServiceManager(environment)
    reports.report_ready()
    reports.report_alive()
    reports.report_stopping()


@pytest.mark.parametrize(
    ("then", "code"), [("time.sleep(600)", 1), ("manager.report_stopping(); time.sleep(1)", 0)]
)
def test_in_a_container_a_daemon_that_hangs_ends_with_its_stacks(then: str, code: int) -> None:
    program = HANGS.format(then=then)
    environment = variables(WATCHDOG_USEC="500000")
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.stdout, done.returncode) == ("lived\n", code)
    assert ("line" in done.stderr) == bool(code), "where it hung"


@pytest.mark.process
def test_the_daemon_reports(tmp_path: Path, manager: socket.socket) -> None:
    write_history(history(CALM | UNINTERRUPTIBLE), tmp_path / "market.parquet")
    command = [
        *(sys.executable, "-m", "costopt", "daemon", "--market", "market.parquet", "--speed", "60"),
        *("--state-dir", "state", "--listen", "none", "--refresh-prices", "none"),
    ]
    environment = variables(NOTIFY_SOCKET=address(manager), WATCHDOG_USEC="2000000")
    daemon = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    try:
        assert manager.recv(100) == b"READY=1"
        assert [manager.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        daemon.terminate()
        while (said := manager.recv(100)) == b"WATCHDOG=1":
            continue
        assert said == b"STOPPING=1"
        assert daemon.wait(PATIENCE_S) == 0
    finally:
        daemon.kill()
        daemon.wait()


def test_a_daemon_whose_ticks_fail_is_alive_and_one_whose_ticks_hang_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = DaemonScene(tmp_path)
    try:
        scene.go(1)
        assert scene.reader.health().alive
        monkeypatch.setattr(scene.daemon.board, "_ticked_mono_s", -1e9)
        scene.ledger.close()
        scene.daemon.tick()
        health = scene.reader.health()
        assert (health.alive, health.ready) == (True, False)
        monkeypatch.setattr(scene.daemon.board, "_looped_mono_s", -1e9)
        assert not scene.reader.health().alive
        assert not is_alive(scene.daemon.service)
    finally:
        scene.close()
