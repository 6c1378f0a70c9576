"""A daemon whose database server lost what it had committed, or is not up yet."""

from __future__ import annotations

import signal
import socket
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from costopt.client.client import DaemonClient, parse_address
from costopt.daemon.loop.ledger_mark import LedgerMark
from costopt.daemon.loop.lost_commits import LostCommits
from costopt.database.connection import wait_for_server
from costopt.domain import events as ev
from costopt.domain.errors import LedgerError
from costopt.ledger.base import open_ledger
from costopt.registry.registry import REGISTRY
from tests.support.counting_trainer import hold, let_go
from tests.support.daemon_fixtures import DaemonScene
from tests.support.errors import has_code
from tests.support.live_daemon import DaemonPlace, awaits_end
from tests.support.live_run import PATIENCE_S, PLAIN, wait_until
from tests.support.postgres_server import PostgresServer

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
    pytest.mark.worker_group("postgres"),
    pytest.mark.process,
]


def lose(scene: DaemonScene, after: int) -> int:
    """Lose the events after a number; return the number of the last one."""
    last = scene.ledger.last_seq()
    with closing(sqlite3.connect(scene.folder / "ledger.sqlite")) as raw:
        raw.execute("DROP TRIGGER IF EXISTS events_never_vanish")
        raw.execute("DELETE FROM events WHERE seq > ?", (after,))
        raw.commit()
    return last


def alerts(scene: DaemonScene, kind: str) -> list[str]:
    return [a.message for a in scene.reader.alerts() if a.kind == kind]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_daemon_that_goes_on_loses_nothing(scene: DaemonScene, share: float) -> None:
    scene.submit("one")
    scene.go(20)
    before = list(scene.ledger.events())
    last = lose(scene, int(share * len(before)))
    scene.go(2)
    assert list(scene.ledger.events())[: len(before)] == before
    (said,) = alerts(scene, "database")
    assert str(last) in said
    scene.go(300)
    assert len(scene.events(ev.JobFinished)) == 1
    assert len(scene.events(ev.NodeLaunched)) == len(scene.events(ev.NodeEnded)) == 1
    assert scene.living() == []
    assert len(alerts(scene, "database")) == 1
    assert alerts(scene, "orphan") == []


def test_a_loss_in_the_middle_of_a_tick_writes_nothing_over_it(scene: DaemonScene) -> None:
    scene.submit("one")
    scene.go(20)
    before = list(scene.ledger.events())
    check = scene.daemon._lost_commits.restore_events

    def lose_after_the_check() -> str:
        said = check()
        scene.daemon._lost_commits.restore_events = check  # type: ignore[method-assign]
        lose(scene, 4)
        return said

    scene.daemon._lost_commits.restore_events = lose_after_the_check  # type: ignore[method-assign]
    scene.go(10)
    assert list(scene.ledger.events())[: len(before)] == before
    assert len(alerts(scene, "database")) == 1


def test_a_daemon_that_died_with_them_launches_nothing_twice(scene: DaemonScene) -> None:
    scene.submit("one")
    scene.go(20)
    _restart_without_events(scene)
    scene.go(300)
    (launched,) = scene.events(ev.NodeLaunched)
    (ended,) = scene.events(ev.NodeEnded)
    assert launched.node_id == ended.node_id == "sim-0001"
    assert len(scene.events(ev.JobFinished)) == 1


def _restart_without_events(scene: DaemonScene) -> None:
    mark = LedgerMark(scene.folder)
    mark.store(lose(scene, 0))
    scene.restart()
    scene.daemon._lost_commits = LostCommits(scene.registry, scene.ledger, mark)


def test_a_daemon_that_died_with_a_job_releases_its_nodes_at_once(scene: DaemonScene) -> None:
    scene.submit("one")
    scene.go(5)
    (old,) = scene.living()
    with closing(sqlite3.connect(scene.folder / REGISTRY)) as raw:
        raw.execute("DELETE FROM submissions")
        raw.commit()
    _restart_without_events(scene)
    scene.go(1)
    (said,) = alerts(scene, "database")
    assert "orphans" in said
    runs: list[str] = []

    class Schedule:
        def hasten(self, name: str) -> None:
            runs.append(name)

    schedule: Any = Schedule()
    scene.daemon.hasten(schedule)
    assert "orphans" in runs
    scene.daemon.sweep()
    assert old.node_id not in [node.node_id for node in scene.living()]
    assert alerts(scene, "orphan")
    runs.clear()
    scene.daemon.hasten(schedule)
    assert "orphans" not in runs, "once"


@pytest.mark.parametrize("text", ["", "many", "-", "12\n13"])
def test_a_mark_that_cannot_be_read_warns_of_nothing(tmp_path: Path, text: str) -> None:
    mark = LedgerMark(tmp_path)
    assert mark.read() == 0
    mark.store(7)
    assert LedgerMark(tmp_path).read() == 7
    (tmp_path / "ledger.last").write_text(text)
    assert LedgerMark(tmp_path).read() == 0
    LedgerMark(tmp_path / "gone").store(8)


@pytest.fixture
def server(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """The server, which the test may stop."""
    yield postgres
    if not postgres.is_up():
        postgres.start()


def _alerts(place: DaemonPlace) -> list[str]:
    client = DaemonClient(parse_address(f"unix:{place.state}/daemon.sock"))
    return [a["message"] for a in client.get("alerts")["alerts"] if a["kind"] == "database"]


@pytest.mark.slow
def test_a_failover_that_loses_commits_loses_no_job_node_or_dollar(
    tmp_path: Path, server: PostgresServer, postgres_url: str
) -> None:
    with server.standby() as standby:
        url = f"{postgres_url},{standby.folder}&target_session_attrs=read-write"
        place = DaemonPlace(tmp_path, url).write()
        place.submit("one")
        hold(place.saves("one"), 40)
        with place.controlled("--lease", "2") as daemon:
            wait_until(lambda: bool(place.of("one", ev.TrainingStarted)), "training of one")
            client = DaemonClient(parse_address(f"unix:{place.state}/daemon.sock"))
            document = {
                "job": place.job("two", "default", 60, 1),
                "policy": PLAIN,
                "workdir": str(tmp_path),
                "anyway": True,
            }
            with standby.behind():
                client.send("POST", "jobs", body=document)
                wait_until(lambda: bool(place.of("two", ev.TrainingStarted)), "training of two")
                with open_ledger(url) as ledger:
                    before = list(ledger.events())
                server.stop("immediate")
            standby.promote()
            wait_until(lambda: bool(_alerts(place)), "word of the loss")
            let_go(place.saves("one"))
            for name in ("one", "two"):
                wait_until(lambda job=name: bool(place.of(job, ev.NodeEnded)), "the end")  # type: ignore[misc]
                assert len(place.of(name, ev.JobFinished)) == 1
            with open_ledger(url) as ledger:
                assert list(ledger.events())[: len(before)] == before
            for name in ("one", "two"):
                assert len(place.of(name, ev.NodeLaunched)) == 1
                assert len(place.of(name, ev.NodeEnded)) == 1
            wait_until(lambda: place.processes() == [], "end of all nodes")
            daemon.send_signal(signal.SIGTERM)
            _, said = daemon.communicate(timeout=PATIENCE_S)
            assert daemon.returncode == 0, said
            assert "Traceback" not in said


@pytest.mark.slow
def test_a_daemon_that_starts_before_its_server_waits(
    tmp_path: Path,
    server: PostgresServer,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = DaemonPlace(tmp_path, postgres_url).write()
    server.stop("fast")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with place.controlled() as daemon:
            assert b"waiting for the database" in manager.recv(1000)
            server.start()
            assert manager.recv(1000) == b"READY=1"
            place.submit("one", steps=3)
            wait_until(lambda: bool(place.of("one", ev.JobFinished)), "the end of a job")
            daemon.send_signal(signal.SIGTERM)
            _, said = daemon.communicate(timeout=PATIENCE_S)
            assert daemon.returncode == 0, said
            assert "waiting for the database" in said


@pytest.mark.slow
def test_a_daemon_that_waits_for_its_server_can_be_ended(
    tmp_path: Path, server: PostgresServer, postgres_url: str
) -> None:
    place = DaemonPlace(tmp_path, postgres_url).write()
    server.stop("fast")
    with place.controlled() as daemon:
        wait_until(lambda: awaits_end(daemon), "start of the daemon")
        daemon.send_signal(signal.SIGTERM)
        _, said = daemon.communicate(timeout=PATIENCE_S)
        assert daemon.returncode == 0, said


def test_a_database_that_does_not_exist_is_refused_at_once(postgres_url: str) -> None:
    with pytest.raises(LedgerError, check=has_code("3D000")):
        wait_for_server(postgres_url.replace("@/d", "@/none"), Event(), print)
