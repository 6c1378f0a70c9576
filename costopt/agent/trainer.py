"""The job's command on this node, and the warm standby that can replace it.

``Trainer`` is one process group: started, asked to stop, and killed as a whole. ``WarmStandby`` is
a process that has imported torch already and replaces a failed trainer at once.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO

from costopt.agent import warm_start
from costopt.agent.containers import Container
from costopt.agent.launch_spec import ProcessSpec, search_path, with_parent_watchdog
from costopt.agent.redaction import RedactedLog, Redactor
from costopt.protocol.trainer_files import StopNotice, TrainerStatus

ERROR_LINE = re.compile(r"^(?:\[.*?\]:?\s*)?((?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b.*)$")
TORCHRUN_LINE = re.compile(r"^E\d{4} .*torch/distributed/elastic|ChildFailedError")
"""Where torchrun begins to report that its child has failed; the child's own error precedes it."""
TAIL_BYTES = 32_768
KILL_TIMEOUT_S = 10.0


class Trainer:
    """The running command: one process, or several that are started separately.

    Its status and notice files are its own, so an old one is never believed.
    """

    def __init__(
        self,
        specs: Sequence[ProcessSpec],
        variables: dict[str, str],
        *,
        workdir: str,
        status_file: Path,
        notice_file: Path,
        log_path: Path,
        container: Container | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        """Start the command, in ``container`` if there is one; ``redactor`` hides what it prints.

        Raise OSError if the folder or the interpreter is missing.
        """
        self.notice_file = notice_file
        self.log_path = log_path
        self.started_at = time.monotonic()
        self.stop_asked_at: float | None = None
        self._deadline_at: float | None = None
        self._signalled = False
        self._specs = tuple(specs)
        self._variables = variables
        self._workdir = workdir
        self._container = container
        self._redactor = redactor or Redactor()
        self._logs: list[RedactedLog] = []
        self._status_file = status_file
        status_file.unlink(missing_ok=True)
        notice_file.unlink(missing_ok=True)
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            for spec in self._specs:
                self._processes.append(self._spawn(spec))
        except OSError:
            self.kill()
            raise

    def exit_code(self) -> int | None:
        """Return the exit code, None while the command runs; negative is the signal that ended it.

        Of several processes the first failure counts even while others run. A command that SIGTERM
        asked to stop runs until its whole group is gone: a shell ends before what it started.
        """
        codes = [process.poll() for process in self._processes]
        if self._signalled and self._is_left():
            return None
        failed = next((code for code in codes if code), None)
        return failed if failed is not None or None in codes else 0

    def restart(self, standby: WarmStandby | None) -> bool:
        """Restart what has failed; return True if ``standby`` replaced one of the processes.

        Raise OSError if a process cannot be started.
        """
        used = False
        for index, spec in enumerate(self._specs):
            if not self._processes[index].poll():
                continue
            warm = None
            if standby is not None and not used:
                warm = standby.activate(
                    spec, self._variables, workdir=self._workdir, log_path=self.log_path
                )
                used = warm is not None
            self._processes[index] = warm or self._spawn(spec)
        return used

    def status(self) -> TrainerStatus | None:
        """Return the trainer's newest status, or None if it has reported none."""
        return TrainerStatus.read(self._status_file)

    @property
    def pids(self) -> tuple[int, ...]:
        """Return the ids of the command's processes; none where a container runs it."""
        return () if self._container else tuple(process.pid for process in self._processes)

    def age_s(self) -> float:
        """Return the seconds of wall time since the start."""
        return time.monotonic() - self.started_at

    def request_stop(self, notice: StopNotice) -> None:
        """Ask the trainer to save and stop: the notice file for costopt.train, else SIGTERM.

        A trainer that reports its status reads the notice file at each step and needs no signal;
        torchrun would end its workers on one. A trainer without a status does not use costopt: its
        whole process group is signalled. A later notice changes the file only if it has an earlier
        deadline.
        """
        first = self.stop_asked_at is None
        if first or _is_earlier(notice.deadline_at, self._deadline_at):
            notice.write(self.notice_file)
            self._deadline_at = notice.deadline_at
        if first:
            self.stop_asked_at = time.monotonic()
            if self.status() is None:
                self._signalled = True
                self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the command and everything it started in its groups, at once.

        A process that waits for a device's driver ends when that answers, and is not waited for.
        """
        self._signal(signal.SIGKILL)
        self._signalled = False
        latest_at = time.monotonic() + KILL_TIMEOUT_S
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, latest_at - time.monotonic()))
        if self._container is not None:
            self._container.remove()

    def error(self) -> str:
        """Return the last line of the log that names an error, else the last line."""
        for written in self._logs:
            written.drain()
        with suppress(OSError), self.log_path.open("rb") as log:
            log.seek(max(0, self.log_path.stat().st_size - TAIL_BYTES))
            text = log.read().decode(errors="replace").splitlines()
            lines = list(takewhile(lambda line: not TORCHRUN_LINE.search(line), text))
            found = (match[1] for line in reversed(lines) if (match := ERROR_LINE.match(line)))
            said = (line for line in reversed(lines) if any(c.isalpha() for c in line))
            return next(found, next(said, ""))[:300]
        return ""

    def _spawn(self, spec: ProcessSpec) -> subprocess.Popen[bytes]:
        variables = {**dict(spec.variables), **self._variables}
        command = spec.command
        if self._container is not None:
            command = self._container.command(command, variables, self._workdir)
        with self._output() as log:
            return subprocess.Popen(  # noqa: S603
                (*with_parent_watchdog(os.getpid()), *command),
                cwd=self._workdir,
                env={**os.environ, "PATH": search_path(), **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )

    def _output(self) -> BinaryIO:
        """Return the log to write to; through a pipe of this process if there is what to hide."""
        if self._redactor.is_empty:
            return self.log_path.open("ab")
        self._logs.append(RedactedLog(self._redactor, self.log_path))
        return self._logs[-1].target

    def _is_left(self) -> bool:
        """Whether any process remains in the command's groups."""
        for process in self._processes:
            if process.poll() is not None:
                with suppress(ChildProcessError):  # as init, this process inherits orphans
                    os.waitpid(-process.pid, os.WNOHANG)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, 0)
                return True
        return False

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)


def _is_earlier(new: float | None, known: float | None) -> bool:
    return new is not None and (known is None or new < known)


MODULES = "torch,torch._dynamo,torch.distributed,costopt.train.attach"
"""Optimizers import torch._dynamo when they are created."""
SCRIPT = str(Path(warm_start.__file__).resolve())


class WarmStandby:
    """One process that waits. It dies with this one, and on ``close``."""

    def __init__(
        self, variables: Mapping[str, str], agent_pid: int, modules: str = MODULES
    ) -> None:
        """Start the process. Raise OSError if it cannot start.

        ``variables`` are those that matter when libraries are imported.
        """
        self._process = subprocess.Popen(  # noqa: S603
            [*with_parent_watchdog(agent_pid), sys.executable, "-u", SCRIPT, modules],
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )

    def is_alive(self) -> bool:
        """Whether the process is warm or warming up."""
        return self._process.poll() is None

    def is_warm(self) -> bool:
        """Whether the process has imported everything and lives."""
        if not self.is_alive():
            return False
        assert self._process.stdout is not None
        poll = select.poll()  # select(2) takes no descriptor above 1,023
        poll.register(self._process.stdout, select.POLLIN)
        return bool(poll.poll(0))

    def activate(
        self, spec: ProcessSpec, variables: Mapping[str, str], *, workdir: str, log_path: Path
    ) -> subprocess.Popen[bytes] | None:
        """Return the process, which runs the script from now on; None if it cannot."""
        if not spec.script or not self.is_warm():
            return None
        message = {
            "argv": list(spec.script),
            "env": {**dict(spec.variables), **variables},
            "cwd": workdir,
            "log": str(log_path),
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.close()
        except OSError:
            return None
        self._process.stdout.close()
        return self._process

    def close(self) -> None:
        """End the process."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
