"""A database file that this process has open is not opened besides SQLite.

POSIX drops all of a process's locks of a file when it closes any descriptor of it
(sqlite.org/howtocorrupt.html, section 2.2): another process then takes itself for the last one,
deletes the write-ahead log, and this process's connections read the past for ever.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

from costopt.database.sqlite import make_private

ADDS_A_ROW = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("INSERT INTO t SELECT max(x) + 1 FROM t")
connection.close()
"""


def test_a_connection_sees_what_others_write_after_the_file_was_made_private(
    tmp_path: Path,
) -> None:
    path = tmp_path / "registry.sqlite"
    make_private(path, create=True)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (x)")
    connection.execute("INSERT INTO t VALUES (1)")
    make_private(path, create=True)
    for number in (2, 3):
        subprocess.run([sys.executable, "-c", ADDS_A_ROW, str(path)], check=True)
        assert connection.execute("SELECT max(x) FROM t").fetchone() == (number,)
    connection.close()
