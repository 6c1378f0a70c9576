"""Commands and trainers as processes that start at once: forked from one that has imported all.

Each is a process as a user's is: with its own arguments, environment, folder, input, outputs and
exit code, and it ends as Python ends. A fork server asks for a connection per command: it answers
with the command's pid, and in the end with its exit code.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import IO, ClassVar

ROOT = Path(__file__).parents[2]
COMMANDS = "commands"
TRAINERS = "trainers"
ON_NODES = ("agent", "train")
"""Packages that no command imports."""
IMPORTED_LATE = ("highspy", "numpy.random", "pandas", "pulp", "pyarrow.compute", "pyarrow.parquet")
"""Modules of others that commands import as they run."""
OF_TRAINERS = (
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "costopt.train.attach",
)
"""Optimizers import torch._dynamo when they are created."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Threads would not be forked."""
MAX_REQUEST_BYTES = 1 << 18
CLIENT = """#!{python} -IS
import json, os, socket, sys
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect({address!r})
code = "from costopt.cli.main import main; main()"
request = [["-c", code, *sys.argv[1:]], os.getcwd(), dict(os.environ), [], False]
socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
connection.recv(32)
code = int(connection.recv(32) or "137")
sys.exit(code if code >= 0 else 128 - code)
"""


class ForkedCommand(subprocess.Popen[str]):
    """A command that runs. Its output goes to files, so it never waits for a reader."""

    def __init__(
        self,
        args: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        imports: str = COMMANDS,
        log: Path | None = None,
    ) -> None:
        """``args`` are those of Python, without the program's own name. Both outputs go to ``log``
        if there is one."""
        self.args = args
        self.stdin = self.stdout = self.stderr = None
        self.returncode: int | None = None
        self._connection = _Server.shared(imports).connect()
        self._output = [_output(log), _output(log)]
        self._said = ["", ""]
        ignored = [n for n in signal.valid_signals() if signal.getsignal(n) is signal.SIG_IGN]
        request = json.dumps([list(args), str(cwd), dict(env), ignored, True]).encode()
        descriptors = [os.open(os.devnull, os.O_RDONLY)]
        for file in self._output:  # opened again: what reads moves the file's position
            path = f"/proc/self/fd/{file.fileno()}"
            descriptors.append(os.open(path, os.O_WRONLY | os.O_APPEND))
        socket.send_fds(self._connection, [request], descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        self.pid = int(self._connection.recv(32))

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code. Raise TimeoutExpired if it still runs after ``timeout`` seconds."""
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self.returncode = int(self._connection.recv(32) or -signal.SIGKILL)
            self._connection.close()
            self._said = [_content(file) for file in self._output]
            for file in self._output:
                file.close()
        return self.returncode

    def said(self) -> str:
        """Return what it has written to standard output so far, while it runs."""
        return _content(self._output[0])

    def communicate(
        self,
        input: str | None = None,  # noqa: A002 - as Popen names it
        timeout: float | None = None,
    ) -> tuple[str, str]:
        """Return what it wrote to standard output and standard error, once it has ended."""
        assert input is None, "a forked command reads nothing"
        self.wait(timeout)
        stdout, stderr = self._said
        return stdout, stderr


def _output(log: Path | None) -> IO[str]:
    return tempfile.TemporaryFile("w+") if log is None else log.open("a+")


def _content(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def run(
    args: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float,
    imports: str = COMMANDS,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. Raise TimeoutExpired, with the process killed, after a while."""
    process = ForkedCommand(args, cwd, env, imports)
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return subprocess.CompletedProcess(args, process.wait(), stdout, stderr)


@contextmanager
def costopt_program() -> Iterator[Path]:
    """Yield a program `costopt` for shells, whose commands are forks; end what they left running.

    A signal to it ends the program, not the command: a test that sends any uses ForkedCommand.
    """
    server = _Server(COMMANDS)
    program = server.folder / "costopt"
    program.write_text(CLIENT.format(python=sys.executable, address=server.address))
    program.chmod(0o755)
    try:
        yield program
    finally:
        server.end()


class _Server:
    """A process that forks. It ends with the one that started it."""

    _started: ClassVar[dict[tuple[int, str], _Server]] = {}

    def __init__(self, imports: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="costopt-"))  # a socket's path must be short
        self.address = str(self.folder / "socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self.address)
            listener.listen(64)
            self._process = subprocess.Popen(
                [sys.executable, __file__, imports, str(listener.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
                process_group=0,
                env=os.environ | ONE_THREAD | {"PYTHONPATH": f"{ROOT}:{ROOT / 'providers'}"},
            )

    @classmethod
    def shared(cls, imports: str) -> _Server:
        """Return that of this process: one that is forked starts its own."""
        key = os.getpid(), imports
        if key not in cls._started:
            cls._started[key] = cls(imports)
        return cls._started[key]

    def connect(self) -> socket.socket:
        """Return a connection for one command."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(self.address)
        return connection

    def end(self) -> None:
        """End the server, and what its commands left running in its process group."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        shutil.rmtree(self.folder)


def import_for(imports: str) -> None:
    """Import what the forks will need."""
    names = [*OF_TRAINERS] if imports == TRAINERS else [*_modules_of_commands(), *IMPORTED_LATE]
    for name in names:
        importlib.import_module(name)
    if imports == COMMANDS:
        for group in ("costopt.providers", "costopt.strategies"):
            for entry in entry_points(group=group):
                entry.load()


def _modules_of_commands() -> Iterator[str]:
    for path in sorted((ROOT / "costopt").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[1] not in ON_NODES and parts[-1] not in ("__init__", "__main__"):
            yield ".".join(parts)


def serve(listener: socket.socket) -> socket.socket:
    """Return a command's connection in a process of its own; end when the input does."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        if select.select([listener, sys.stdin], [], [])[0] != [listener]:
            shutil.rmtree(Path(listener.getsockname()).parent)
            os.killpg(0, signal.SIGKILL)
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            return connection
        connection.close()


def become(connection: socket.socket) -> None:
    """Run, in one more process, what ``python …`` would run, and send how that ends."""
    data, descriptors, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, 3)
    args, cwd, env, ignored, own_group = json.loads(data)
    command = os.fork()
    if command:
        for descriptor in (0, *descriptors):
            os.close(descriptor)
        connection.sendall(str(command).encode())
        code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
        with suppress(OSError):  # nobody waits any more
            connection.sendall(str(code).encode())
        os._exit(0)
    connection.close()
    if own_group:
        os.setpgid(0, 0)
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    # What it starts is given its path, and there what its own environment adds comes first.
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    _run_python(*args)


def _run_python(first: str, *rest: str) -> None:
    match first:
        case "-m":
            sys.argv, sys.path[0] = [*rest], str(Path.cwd())
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        case "-c":
            code, *arguments = rest
            sys.argv, sys.path[0] = ["-c", *arguments], ""
            exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        case _:
            sys.argv, sys.path[0] = [first, *rest], str(Path(first).resolve().parent)
            runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    imported, number = sys.argv[1:]
    import_for(imported)
    gc.freeze()  # else each fork frees, as it ends, all that it never used
    become(serve(socket.socket(fileno=int(number))))
    if imported == TRAINERS:
        # Threads of PyTorch's own were not forked: its destructors abort for want of them.
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and not thread.daemon:
                thread.join()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
