"""Accounts of a test's Slurm cluster: MariaDB and slurmdbd, as sites have them for sacct."""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

PROGRAMS = ("mariadbd", "mariadb-install-db", "mariadb-admin", "slurmdbd", "sacct")


def skip_without_accounting() -> None:
    """Skip the test where accounts cannot be had."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(
            f"{', '.join(missing)} not installed: nothing of Slurm's accounting is tested "
            "(Debian: apt install slurmdbd mariadb-server)"
        )


def cluster_settings(folder: Path, port: int) -> list[str]:
    """Return the lines of slurm.conf. Comments are kept where AccountingStoreFlags says so."""
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={port}",
        f"AccountingStoragePass={folder}/munge/socket",
    ]


def write_slurmdbd_conf(folder: Path, port: int, database_port: int, plugins: str) -> None:
    """Write slurmdbd's configuration, which it looks for beside slurm.conf."""
    path = folder / "slurmdbd.conf"
    path.write_text(
        f"""\
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
DbdHost={socket.gethostname()}
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser={getpass.getuser()}
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database_port}
StorageUser=root
StorageLoc=slurm
LogFile={folder}/log/slurmdbd.log
PidFile={folder}/run/slurmdbd.pid
PluginDir={plugins}
""",
        encoding="utf-8",
    )
    path.chmod(0o600)


def install_database(data: Path) -> None:
    """Make an empty database, which takes seconds; skip the test where MariaDB cannot."""
    command = (
        "mariadb-install-db", *_server_options(data), "--auth-root-authentication-method=normal",
        "--skip-test-db",
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode:
        pytest.skip(
            "mariadb-install-db makes no database here: nothing of Slurm's accounting is tested\n"
            f"{done.stdout}{done.stderr}"
        )


def database_command(data: Path, port: int) -> tuple[str, ...]:
    """Return the command that serves it on the loopback, to any client."""
    return (
        "mariadbd", *_server_options(data), f"--port={port}", "--bind-address=127.0.0.1",
        f"--socket={data}/socket", f"--pid-file={data}/pid", "--skip-grant-tables",
        "--innodb-flush-log-at-trx-commit=0",
    )  # fmt: skip


def _server_options(data: Path) -> tuple[str, ...]:
    """Return options that need little disk and memory, and no folder but the test's own."""
    return (
        "--no-defaults", f"--user={getpass.getuser()}", f"--datadir={data}",
        f"--tmpdir={data.parent}", "--innodb-log-file-size=8M", "--innodb-buffer-pool-size=16M",
        "--innodb-use-native-aio=0",
    )  # fmt: skip
