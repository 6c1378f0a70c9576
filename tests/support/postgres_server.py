"""A PostgreSQL server of the tests' own: in a temporary folder, reached by its socket alone."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.support.live_run import wait_until

ADMIN = "costopt"
_numbers = count(1)


class PostgresServer:
    """Started by the user that runs the tests; in place of root, which it refuses, by another."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs
        self.folder = folder
        self._as_user = _user_in_place_of_root()
        self.data = folder / "data"
        self.log = folder / "log"

    def make(self) -> None:
        """Make the cluster and start it."""
        if self._as_user:
            shutil.chown(self.folder, self._as_user["user"], self._as_user["group"])
        self._call("initdb", "-D", self.data, "-U", ADMIN, "-A", "trust", "--no-sync",
                   "--locale=C", "--encoding=UTF8")  # fmt: skip
        self.start()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """End the server, and remove the folder, also where the tests are killed."""
        wait = f"while [ -e /proc/{os.getpid()} ]; do sleep 1; done"
        stop = f"{self._programs}/pg_ctl -D {self.data} -m immediate stop; rm -rf {self.folder}"
        watch = subprocess.Popen(
            ["/bin/sh", "-c", f"{wait}; {stop}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            **self._as_user,
        )
        try:
            yield
        finally:
            os.killpg(watch.pid, signal.SIGKILL)
            watch.wait()

    def start(self) -> None:
        """Wait until it answers."""
        options = f"-c listen_addresses= -c unix_socket_directories={self.folder} -c fsync=off"
        self._call("pg_ctl", "-D", self.data, "-l", self.log, "-o", options, "-w", "start")

    def is_up(self) -> bool:
        """Whether it answers."""
        return self._run("psql", "-h", self.folder, "-U", ADMIN, "-d", "postgres", "-c",
                         "SELECT 1").returncode == 0  # fmt: skip

    def stop(self, mode: str = "immediate") -> None:
        """``immediate`` is a crash, ``fast`` ends sessions with a message."""
        self._call("pg_ctl", "-D", self.data, "-m", mode, "-w", "stop")

    def database(self) -> str:
        """The URL of a new and empty database."""
        name = f"d{next(_numbers)}"
        self.sql(f"CREATE DATABASE {name} TEMPLATE template0", "postgres")
        return self.url(name)

    def url(self, database: str, user: str = ADMIN) -> str:
        """Where a database is reached."""
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def sql(self, statement: str, database: str) -> str:
        """What psql answers, without decoration."""
        said = self._call(
            "psql", "-h", self.folder, "-U", ADMIN, "-d", database, "-Atqc", statement
        )
        return said.strip()

    @contextmanager
    def standby(self) -> Iterator[PostgresStandby]:
        """A standby of this server, which may be promoted in its place."""
        with tempfile.TemporaryDirectory(prefix="costopt-pg-") as folder:
            made = PostgresStandby(self._programs, Path(folder))
            made.follow(self)
            with made.watched():
                yield made
            made.stop()

    def lose(self, table: str, where: str, database: str) -> None:
        """Lose rows, also of a table that refuses that."""
        self.sql(
            f"ALTER TABLE {table} DISABLE TRIGGER ALL; DELETE FROM {table} WHERE {where};"
            f" ALTER TABLE {table} ENABLE TRIGGER ALL",
            database,
        )

    def _call(self, program: str, *arguments: str | Path) -> str:
        done = self._run(program, *arguments)
        assert done.returncode == 0, f"{program}: {done.stdout}"
        return done.stdout or ""

    def _run(self, program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._programs / program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if program != "pg_ctl" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            text=True,
            cwd="/",
            env={**os.environ, "LC_ALL": "C"},
            **self._as_user,
        )


class PostgresStandby(PostgresServer):
    """Receives what its primary commits, which does not wait for it."""

    def follow(self, primary: PostgresServer) -> None:
        """Copy the primary and start."""
        self.folder.chmod(0o755)
        if self._as_user:
            shutil.chown(self.folder, self._as_user["user"], self._as_user["group"])
        self._call("pg_basebackup", "-h", primary.folder, "-U", ADMIN, "-D", self.data,
                   "-R", "-X", "stream", "-c", "fast")  # fmt: skip
        self.start()
        wait_until(lambda: bool(self._receivers()), "a connection to the primary")

    @contextmanager
    def behind(self) -> Iterator[None]:
        """Receive nothing meanwhile, nor what was committed then: the primary is to die inside."""
        receivers = self._receivers()
        for pid in receivers:
            os.kill(pid, signal.SIGSTOP)
        yield
        for pid in receivers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def promote(self) -> None:
        """Become the primary."""
        # A killed process makes the server start its others again, which refuses a promotion.
        wait_until(lambda: self.is_up() and self._promoted(), "a primary")

    def _promoted(self) -> bool:
        self._run("pg_ctl", "-D", self.data, "-w", "promote")
        return self.sql("SELECT pg_is_in_recovery()", "postgres") == "f"

    def _receivers(self) -> list[int]:
        """The processes that receive from the primary."""
        (server,) = (self.data / "postmaster.pid").read_text("utf-8").split()[:1]
        found = []
        for status in Path("/proc").glob("[0-9]*/status"):
            with suppress(OSError):
                is_child = f"\nPPid:\t{server}\n" in status.read_text("utf-8")
                command = status.with_name("cmdline").read_bytes()
                if is_child and b"walreceiver" in command:
                    found.append(int(status.parent.name))
        return found


def _user_in_place_of_root() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name for entry in pwd.getpwall()}
    user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    if found:
        return found[-1].parent
    return Path(on_path).resolve().parent if on_path else None


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The server; tests that stop it start it again."""
    programs = _programs()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed (Debian: apt install postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="costopt-pg-"))
    folder.chmod(0o755)
    server = PostgresServer(programs, folder)
    try:
        server.make()
        with server.watched():
            yield server
        server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """An empty database."""
    return postgres.database()
