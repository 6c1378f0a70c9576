"""The job's command on this node: one process group, started, told to stop, and killed whole."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from costopt.agent.launcher import LaunchSpec
from costopt.agent.status import TrainerStatus
from costopt.agent.stop_notice import StopNotice

ERROR_LINE = re.compile(r"^(?:\[.*?\]:?\s*)?((?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b.*)$")
TORCHRUN_LINE = re.compile(r"^E\d{4} .*torch/distributed/elastic|ChildFailedError")
"""Where torchrun begins to report that its child has failed; the child has said its own by then."""
TAIL_BYTES = 32_768


class Trainer:
    """A running command. Its status and notice files are its own, so no old one is believed."""

    def __init__(
        self,
        spec: LaunchSpec,
        variables: dict[str, str],
        *,
        workdir: str,
        status_file: Path,
        notice_file: Path,
        log_path: Path,
    ) -> None:
        """Start the command. Raises OSError where the folder or interpreter is missing."""
        self.notice_file = notice_file
        self.log_path = log_path
        self.started_at = time.monotonic()
        self.stop_asked_at: float | None = None
        self._deadline_at: float | None = None
        self._status_file = status_file
        status_file.unlink(missing_ok=True)
        notice_file.unlink(missing_ok=True)
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603
                spec.command,
                cwd=workdir,
                env={**os.environ, **dict(spec.variables), **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )

    def exit_code(self) -> int | None:
        """None while the command runs; negative is the signal that ended it."""
        return self._process.poll()

    def status(self) -> TrainerStatus | None:
        """What the trainer last told of itself, or None where it has told nothing."""
        return TrainerStatus.read(self._status_file)

    def age_s(self) -> float:
        """Seconds of the wall since the start."""
        return time.monotonic() - self.started_at

    def ask_stop(self, notice: StopNotice) -> None:
        """Tell the trainer to save and stop: the notice file for costopt.train, else SIGTERM.

        A trainer that reports its status reads the notice file at each step and needs no signal;
        torchrun would end its workers on one. One that reports nothing knows nothing of costopt:
        its whole process group is signalled. A later notice changes the file only where it names a
        sooner end.
        """
        first = self.stop_asked_at is None
        if first or _sooner(notice.deadline_at, self._deadline_at):
            notice.write(self.notice_file)
            self._deadline_at = notice.deadline_at
        if first:
            self.stop_asked_at = time.monotonic()
            if self.status() is None:
                self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the command and everything it started in its group, at once."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def error(self) -> str:
        """The last line of the log that names an error, else the last line."""
        with suppress(OSError), self.log_path.open("rb") as log:
            log.seek(max(0, self.log_path.stat().st_size - TAIL_BYTES))
            written = log.read().decode(errors="replace").splitlines()
            lines = list(takewhile(lambda line: not TORCHRUN_LINE.search(line), written))
            found = (match[1] for line in reversed(lines) if (match := ERROR_LINE.match(line)))
            said = (line for line in reversed(lines) if any(c.isalpha() for c in line))
            return next(found, next(said, ""))[:300]
        return ""

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def _sooner(new: float | None, known: float | None) -> bool:
    return new is not None and (known is None or new < known)
