"""A PostgreSQL server that restarts, cuts off or refuses; daemons that stop and wake up."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from costopt.database.connection import Database
from costopt.database.migrations import Transaction
from costopt.domain.errors import LedgerError
from costopt.domain.events import RunStopped
from costopt.ledger import dialects
from costopt.ledger.dialects import PostgresConnection
from costopt.ledger.sql_ledger import SqlLedger, open_postgres_ledger
from costopt.registry.registry import open_registry
from tests.support.errors import has_code
from tests.support.live_run import PATIENCE_S, wait_until
from tests.support.postgres_server import PostgresServer

pytestmark = pytest.mark.worker_group("postgres")

AT = datetime(2026, 1, 1, tzinfo=UTC)
LEASE_S = 0.6


def is_connection_lost(error: LedgerError) -> bool:
    """By its SQLSTATE: a connection exception, or the server's shutdown."""
    return error.code.startswith(("08", "57P"))


def event(reason: str) -> RunStopped:
    return RunStopped(at=AT, job="a", reason=reason)


def reasons(url: str) -> list[str]:
    with open_postgres_ledger(url) as ledger:
        return [r.event.reason for r in ledger.events() if isinstance(r.event, RunStopped)]


PRELUDE = """
import os, signal, sys, threading, time
from datetime import UTC, datetime
from costopt.domain.errors import LedgerError
from costopt.domain.events import RunStopped
from costopt.database import connection
connection.IDLE_TRANSACTION_S = 1
from costopt.ledger.sql_ledger import SqlLedger, open_postgres_ledger

url, name = sys.argv[1:3]
at = datetime(2026, 1, 1, tzinfo=UTC)
ledger = open_postgres_ledger(url)
parent = os.getppid()
"""

DAEMON = PRELUDE + textwrap.dedent(
    f"""
    leadership = ledger.leadership(name, {LEASE_S})

    def renew():
        while True:
            try:
                leadership.renew()
            except LedgerError:
                pass
            time.sleep({LEASE_S / 4})

    threading.Thread(target=renew, daemon=True).start()
    # Once it has led it acts many times without asking again: only the fence is in its way.
    while os.getppid() == parent:
        try:
            leadership.acquire()
            for _ in range(20 if leadership.fence is not None else 0):
                ledger.append(RunStopped(at=at, job="a", reason=f"{{name}} {{leadership.fence}}"))
                time.sleep(0.01)
        except LedgerError:
            pass
        time.sleep(0.01)
    """
)

FROZEN = PRELUDE + textwrap.dedent(
    """
    leadership = ledger.leadership(name, 0.6)
    assert leadership.acquire()
    check = SqlLedger._check_fence

    def check_and_freeze(self, transaction):
        check(self, transaction)
        os.kill(os.getpid(), signal.SIGSTOP)

    SqlLedger._check_fence = check_and_freeze
    try:
        ledger.append(RunStopped(at=at, job="a", reason="frozen"))
    except LedgerError as error:
        print(error)
    """
)


@contextmanager
def process(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True
    )
    try:
        yield started
    finally:
        for number in (signal.SIGCONT, signal.SIGKILL):
            with suppress(ProcessLookupError):
                started.send_signal(number)
        started.wait()
        assert started.stdout is not None
        started.stdout.close()


def is_stopped(started: subprocess.Popen[str]) -> bool:
    return Path(f"/proc/{started.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_stopped_leader_that_wakes_cannot_act(postgres_url: str) -> None:
    with (
        open_postgres_ledger(postgres_url) as ledger,
        process(DAEMON, postgres_url, "a") as first,
        process(DAEMON, postgres_url, "b") as second,
    ):
        by_name = {"a": first, "b": second}
        leader = who_acts(ledger, "ab", 0)
        for _ in range(3):
            by_name[leader].send_signal(signal.SIGSTOP)
            after = max(r.seq for r in ledger.events())
            other = who_acts(ledger, "ab".replace(leader, ""), after)
            by_name[leader].send_signal(signal.SIGCONT)
            time.sleep(LEASE_S / 2)
            leader = other
    reported = [reason.split() for reason in reasons(postgres_url)]
    fences = [int(fence) for _, fence in reported]
    assert fences == sorted(fences)
    assert len(set(fences)) >= 4
    assert len({(name, fence) for name, fence in reported}) == len(set(fences)), "two led at a time"


def who_acts(ledger: SqlLedger, names: str, after: int) -> str:
    """Which of these daemons appends first, beyond event ``after``."""
    acts: list[str] = []

    def seen() -> bool:
        reported = (r.event for r in ledger.events(after=after))
        acts.extend(
            e.reason[0] for e in reported if isinstance(e, RunStopped) and e.reason[0] in names
        )
        return bool(acts)

    wait_until(seen, f"act of {names}")
    return acts[0]


def test_a_leader_that_is_stopped_amid_an_append_holds_no_one_up(postgres_url: str) -> None:
    with (
        open_postgres_ledger(postgres_url) as ledger,
        process(FROZEN, postgres_url, "frozen") as frozen,
    ):
        wait_until(lambda: is_stopped(frozen), "freezing")
        leadership = ledger.leadership("awake", LEASE_S)
        wait_until(lambda: taken(leadership.acquire), "leadership")
        ledger.append(event("awake"))
        frozen.send_signal(signal.SIGCONT)
        reported, _ = frozen.communicate(timeout=PATIENCE_S)
    assert "→" in reported
    assert reasons(postgres_url) == ["awake"]


def taken(take: Callable[[], bool]) -> bool:
    try:
        return take()
    except LedgerError:
        return False


def restart_within_next(server: PostgresServer, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """From now on the next append finds the server restarted before it has inserted anything."""
    check = SqlLedger._check_fence

    def restart_once(self: SqlLedger, transaction: Transaction) -> None:
        monkeypatch.setattr(SqlLedger, "_check_fence", check)
        check(self, transaction)
        server.stop(mode)
        server.start()

    monkeypatch.setattr(SqlLedger, "_check_fence", restart_once)


@pytest.mark.parametrize("mode", ["immediate", "fast"])
def test_a_server_that_restarts_amid_an_append_leaves_nothing_half(
    postgres: PostgresServer, postgres_url: str, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    with open_postgres_ledger(postgres_url) as ledger:
        ledger.append(event("before"))
        restart_within_next(postgres, monkeypatch, mode)
        with pytest.raises(LedgerError, check=is_connection_lost) as caught:
            ledger.append(event("lost"), event("lost"))
        assert caught.value.hint
        ledger.append(event("after"))
        assert [r.seq for r in ledger.events()] == [1, 2]
    assert reasons(postgres_url) == ["before", "after"]


def test_a_server_that_is_down_is_reported_and_found_again(
    postgres: PostgresServer, postgres_url: str
) -> None:
    with open_postgres_ledger(postgres_url) as ledger, open_registry(postgres_url) as registry:
        ledger.append(event("before"))
        postgres.stop()
        try:
            for use in (
                lambda: ledger.append(event("lost")),
                lambda: list(ledger.events()),
                registry.halted,
                lambda: open_postgres_ledger(postgres_url),
            ):
                with pytest.raises(LedgerError, check=has_code("08006")) as caught:
                    use()
                assert caught.value.hint
        finally:
            postgres.start()
        ledger.append(event("after"))
        assert registry.halted() is None
    assert reasons(postgres_url) == ["before", "after"]


class Cutter:
    """Between a client and the server: cuts the connection at the first COMMIT of an insert."""

    def __init__(self, folder: Path, server: Path, *, forward: bool) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self._server = server / ".s.PGSQL.5432"
        self._forward = forward
        self._inserted = False
        self.cuts = 0
        self._sockets = [self._listener]
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        for end in self._sockets:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for end in self._sockets:
            end.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(self._server))
                self._sockets += [client, server]
                for run in (self._to_server, self._to_client):
                    pump = threading.Thread(target=run, args=(client, server), daemon=True)
                    pump.start()
                    self._threads.append(pump)

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                self._inserted = self._inserted or b"INSERT INTO events" in data
                if b"COMMIT" in data and self._inserted and not self.cuts:
                    self.cuts += 1
                    client.shutdown(socket.SHUT_RDWR)
                    if self._forward:
                        server.sendall(data)
                        time.sleep(0.2)
                    break
                server.sendall(data)
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)

    def _to_client(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)


def test_a_transaction_that_outlives_its_connection_is_refused(
    postgres: PostgresServer, postgres_url: str
) -> None:
    database = Database("ledger", postgres_url, lock=1)

    def use_after_the_loss() -> None:
        with database.reading() as transaction:
            transaction.execute("SELECT 1")
            postgres.stop()
            postgres.start()
            with suppress(OperationalError):
                transaction.execute("SELECT 1")
            transaction.execute("SELECT 1")

    with pytest.raises(LedgerError, check=has_code("08006")):
        use_after_the_loss()
    with database.reading() as transaction:
        assert transaction.execute("SELECT 1") == [(1,)]
    database.close()


@pytest.mark.parametrize("forward", [True, False])
def test_an_append_whose_commit_is_not_answered_is_looked_up(
    postgres: PostgresServer, postgres_url: str, forward: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cutter = Cutter(Path(folder), postgres.folder, forward=forward)
        with open_postgres_ledger(postgres_url.replace(str(postgres.folder), folder)) as ledger:
            if forward:
                ledger.append(event("1"), event("2"))
            else:
                with pytest.raises(LedgerError, check=has_code("08006")):
                    ledger.append(event("1"), event("2"))
            ledger.append(event("3"))
        cutter.close()
    assert cutter.cuts == 1
    assert reasons(postgres_url) == (["1", "2", "3"] if forward else ["3"])


def test_an_append_that_cannot_be_looked_up_says_so(
    postgres: PostgresServer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialects, "COMMIT_CHECK_TIMEOUT_S", 0.3)
    with tempfile.TemporaryDirectory() as folder:
        cutter = Cutter(Path(folder), postgres.folder, forward=True)
        with open_postgres_ledger(postgres_url.replace(str(postgres.folder), folder)) as ledger:
            monkeypatch.setattr(PostgresConnection, "_status", lambda *_: None)
            with pytest.raises(LedgerError, check=has_code("outcome_unknown")) as caught:
                ledger.append(event("1"))
            assert caught.value.hint
        cutter.close()


WRITER = PRELUDE + textwrap.dedent(
    """
    for number in range(int(name), 100_000):
        ledger.append(*(RunStopped(at=at, job="a", reason=str(number)) for _ in range(7)))
        print(number, flush=True)
    """
)


def test_a_writer_that_is_killed_leaves_whole_batches_only(postgres_url: str) -> None:
    chance, appended = random.Random(7), 0
    for _ in range(3):
        with process(WRITER, postgres_url, str(appended)) as writer:
            assert writer.stdout is not None
            for _ in range(chance.randrange(1, 30)):
                acknowledged = int(writer.stdout.readline())
            writer.kill()
            rest = writer.stdout.read().split()
            acknowledged = int(rest[-1]) if rest else acknowledged
        found = reasons(postgres_url)
        appended = len(found) // 7
        assert found == [str(number) for number in range(appended) for _ in range(7)]
        assert appended >= acknowledged + 1, "an acknowledged batch is missing"


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE events SET body = '{}'", "append-only"),
        ("DELETE FROM events", "append-only"),
        ("TRUNCATE events", "append-only"),
        ("INSERT INTO events SELECT * FROM events", "duplicate key"),
        ("INSERT INTO events SELECT * FROM events ON CONFLICT (seq) DO UPDATE SET body = ''",
         "append-only"),
    ],
)  # fmt: skip
def test_the_database_itself_refuses_change(
    postgres: PostgresServer, postgres_url: str, statement: str, message: str
) -> None:
    with open_postgres_ledger(postgres_url) as ledger:
        ledger.append(event("kept"))
    database = postgres_url.partition("@/")[2].partition("?")[0]
    with pytest.raises(AssertionError, match=message):
        postgres.sql(statement, database)
    assert reasons(postgres_url) == ["kept"]


def test_servers_that_refuse_are_distinguished(postgres: PostgresServer, postgres_url: str) -> None:
    def refusal(url: str, *, create: bool = True) -> LedgerError:
        with pytest.raises(LedgerError) as caught:
            open_postgres_ledger(url, create=create)
        assert caught.value.hint
        assert "geheim" not in str(caught.value)
        return caught.value

    folder = str(postgres.folder)
    assert refusal(postgres.url("nowhere")).code == "3D000"
    assert "createdb" in str(refusal(postgres.url("nowhere")))
    assert refusal(postgres.url("postgres", "stranger:geheim")).code == "28000"
    assert refusal(f"postgresql://u:geheim@/d?host={folder}/none").code == "08006"
    assert refusal(postgres_url, create=False).code == "missing"
    assert refusal("mysql://u:geheim@h/d").code == "unknown_scheme"
    with open_postgres_ledger(postgres_url) as ledger:
        database = postgres_url.partition("@/")[2].partition("?")[0]
        postgres.sql("UPDATE ledger_version SET version = 99", database)
        assert refusal(postgres_url).code == "wrong_version"
        postgres.sql(f"ALTER DATABASE {database} SET default_transaction_read_only = on", database)
        ledger.close()
        with pytest.raises(LedgerError, check=has_code("25006")):
            ledger.append(event("no"))
