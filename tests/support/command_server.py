"""The command ``costopt`` as a fork of one process that has imported it already.

For commands that a shell runs by the dozen: each sees its own arguments, environment, working
directory, input and outputs, ends as a process of its own does, and spares the imports. A signal to
the command itself ends the client alone, so a test that sends any starts processes instead.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import entry_points
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_REQUEST_BYTES = 1 << 18
ON_NODES = ("agent", "train")
"""Packages that no command imports."""
IMPORTED_LATE = ("highspy", "numpy.random", "pandas", "pulp", "pyarrow.compute", "pyarrow.parquet")
"""Modules of others that commands import as they run."""
CLIENT = """#!{python} -IS
import json, os, socket, sys
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect({address!r})
request = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()])
socket.send_fds(connection, [request.encode()], [0, 1, 2])
code = connection.recv(1)
sys.exit(code[0] if code else "the server of commands has ended")
"""


@contextmanager
def command_server() -> Iterator[Path]:
    """Yield a program `costopt`; end the server and what its commands left running."""
    folder = Path(tempfile.mkdtemp(prefix="costopt-"))  # a socket's path must be short
    address, program = folder / "socket", folder / "costopt"
    program.write_text(CLIENT.format(python=sys.executable, address=str(address)))
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(address))
        listener.listen(16)
        code = f"from {__name__} import serve; serve({listener.fileno()})"
        server = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'providers'}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            process_group=0,
        )
    try:
        yield program
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        shutil.rmtree(folder)


def serve(listener_descriptor: int) -> None:
    """Fork for each request. Return never; in a fork, end as the command does."""
    for module in (*_modules(), *IMPORTED_LATE):
        importlib.import_module(module)
    for group in ("costopt.providers", "costopt.strategies"):
        for entry in entry_points(group=group):
            entry.load()
    gc.freeze()  # else each fork frees, as it ends, all that it never used
    with socket.socket(fileno=listener_descriptor) as listener:
        connection = _connection_in_a_fork(listener)
    data, descriptors, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, 3)
    _wait_in_the_parent(connection, descriptors)
    connection.close()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    arguments, environment, folder = json.loads(data)
    sys.argv[1:] = arguments
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    importlib.import_module("costopt.cli.main").main()


def _modules() -> Iterator[str]:
    """Return the names of costopt's modules."""
    for path in sorted((ROOT / "costopt").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[1] not in ON_NODES and parts[-1] not in ("__init__", "__main__"):
            yield ".".join(parts)


def _connection_in_a_fork(listener: socket.socket) -> socket.socket:
    """Return a connection in a process of its own, for each that comes; the server goes on."""
    while True:
        connection, _ = listener.accept()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if os.fork() == 0:
            return connection
        connection.close()


def _wait_in_the_parent(connection: socket.socket, descriptors: list[int]) -> None:
    """Return in the command's process; the other sends how that ends, and is over."""
    command = os.fork()
    if command == 0:
        return
    for descriptor in descriptors:
        os.close(descriptor)
    _, status = os.waitpid(command, 0)
    code = os.waitstatus_to_exitcode(status)
    connection.sendall(bytes([code if code >= 0 else 128 - code]))
    os._exit(0)
