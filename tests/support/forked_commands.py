"""Commands and trainers as processes that start at once: forked from one that has imported all.

Each is a process as a user's is: with its own environment, folder, process group and output, and it
ends as Python ends.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar

COMMANDS = (
    "costopt.api.plans",
    "costopt.cli.jobs",
    "costopt.cli.ledger",
    "costopt.cli.main",
    "costopt.cli.run",
    "costopt.controller.live_run",
    "costopt.controller.simulated_site",
    "costopt.daemon.control",
    "costopt.market.history_file",
    "costopt.render.events",
    "costopt.render.run_tables",
    "costopt.spec.job_file",
    "costopt_sim.process_provider",
)
"""What most commands import, but for pyarrow, which starts a thread; each imports the rest."""
TRAINERS = (
    "torch._dynamo",
    "torch.distributed.fsdp",
    "costopt.train.attach",
)
"""Optimizers import torch._dynamo when they are created."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Threads would not be forked."""
POLL_S = 0.03


class ForkedCommand(subprocess.Popen[str]):
    """A command that runs. Its output goes to files, so it never waits for a reader."""

    def __init__(
        self,
        args: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        modules: Sequence[str] = COMMANDS,
    ) -> None:
        """``args`` are those of Python, without the program's own name."""
        self.args = args
        self.stdin = self.stdout = self.stderr = None
        self.returncode: int | None = None
        self._server = _Server.shared(tuple(modules))
        self._output = [tempfile.TemporaryFile("w+") for _ in range(2)]  # noqa: SIM115 - in poll
        ignored = [n for n in signal.valid_signals() if signal.getsignal(n) is signal.SIG_IGN]
        self.pid = self._server.ask(
            args=list(args),
            cwd=str(cwd),
            env=dict(env),
            output=[f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in self._output],
            ignored=ignored,
        )

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        if self.returncode is None:
            self.returncode = self._server.ask(pid=self.pid)
            if self.returncode is not None:
                self._said = [_content(file) for file in self._output]
        return self.returncode

    def said(self) -> str:
        """Return what it has written to standard output so far, while it runs."""
        self._output[0].seek(0)
        return self._output[0].read()

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code. Raise TimeoutExpired if it still runs after ``timeout`` seconds."""
        until = float("inf") if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            time.sleep(POLL_S)
        return code

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


def _content(file: IO[str]) -> str:
    with file:
        file.seek(0)
        return file.read()


def run(
    args: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float,
    modules: Sequence[str] = COMMANDS,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. Raise TimeoutExpired, with the process killed, after a while."""
    process = ForkedCommand(args, cwd, env, modules)
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return subprocess.CompletedProcess(args, process.wait(), stdout, stderr)


class _Server:
    """A process that forks. It ends with the one that started it."""

    _started: ClassVar[dict[tuple[int, tuple[str, ...]], _Server]] = {}

    def __init__(self, modules: tuple[str, ...]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"},
        )
        atexit.register(self._process.kill)

    @classmethod
    def shared(cls, modules: tuple[str, ...]) -> _Server:
        """Return that of this process: one that is forked starts its own."""
        key = os.getpid(), modules
        if key not in cls._started:
            cls._started[key] = cls(modules)
        return cls._started[key]

    def ask(self, **question: Any) -> Any:
        """Return the answer to a request of ``serve``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def serve() -> dict[str, Any]:
    """Fork a process for each request; return the request in each of them."""
    ended: dict[int, int] = {}
    for line in sys.stdin:
        question = json.loads(line)
        if (pid := question.get("pid")) is None:
            pid = os.fork()
            if pid == 0:
                return dict(question)
            ended.pop(pid, None)  # numbers of processes come again
            answer: int | None = pid
        else:
            if pid not in ended:
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    ended[pid] = os.waitstatus_to_exitcode(status)
            answer = ended.get(pid)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    sys.exit()


def become(command: dict[str, Any]) -> None:
    """Run a Python module or script as the command line ``python …`` would."""
    os.setpgid(0, 0)
    os.chdir(command["cwd"])
    os.environ.clear()
    os.environ.update(command["env"])
    for number in command["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    for number, path in enumerate(command["output"], 1):
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    first, *rest = command["args"]
    match first:
        case "-m":
            sys.argv, sys.path[0] = rest, command["cwd"]
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        case "-c":
            code, *arguments = rest
            sys.argv, sys.path[0] = ["-c", *arguments], ""
            exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        case _:
            sys.argv, sys.path[0] = [first, *rest], str(Path(first).resolve().parent)
            runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        importlib.import_module(name)
    gc.freeze()
    become(serve())
