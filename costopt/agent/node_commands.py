"""Runs what an operator asks of this node, beside the trainer: `costopt exec`."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

from costopt.agent.launch_spec import with_parent_watchdog
from costopt.domain.text import displayable_text
from costopt.protocol.node_commands import (
    MAX_OUTPUT_BYTES,
    CommandBox,
    CommandResult,
    ExecRequest,
)

POLL_S = 2.0


@dataclass(frozen=True, slots=True)
class _Running:
    command: ExecRequest
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    until_s: float


class ExecRunner:
    """One command at a time; ``workdir`` returns the folder in which it runs."""

    def __init__(
        self,
        box: CommandBox,
        node_id: str,
        workdir: Callable[[], str],
        poll_s: float = POLL_S,
    ) -> None:
        self._box = box
        self._node_id = node_id
        self._workdir = workdir
        self._poll_s = poll_s
        self._polled_s = -1e9
        self._seen: str | None = None
        self._running: _Running | None = None

    def poll(self) -> None:
        """Begin a new command, or report how the running one ended. Raise StoreError."""
        if self._running is not None:
            self._watch(self._running)
            return
        if time.monotonic() - self._polled_s < self._poll_s:
            return
        self._polled_s = time.monotonic()
        command = self._box.newest(self._node_id)
        if command is None or command.id == self._seen:
            return
        if self._box.result(self._node_id, command.id) is None:
            self._begin(command)
        self._seen = command.id

    def close(self) -> None:
        """Kill what runs."""
        if self._running is not None:
            _kill(self._running.process)
            self._running.output.close()
            self._running = None

    def _begin(self, command: ExecRequest) -> None:
        output = tempfile.TemporaryFile()  # noqa: SIM115 - closed once it was read
        try:
            process = subprocess.Popen(  # noqa: S603
                (*with_parent_watchdog(os.getpid()), *command.command),
                cwd=self._workdir(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            output.close()
            result = CommandResult(command.id, None, "", message=f"cannot be started: {error}")
            self._box.post_result(self._node_id, result)
            return
        until_s = time.monotonic() + command.timeout_s
        self._running = _Running(command, process, output, until_s)

    def _watch(self, running: _Running) -> None:
        code, message = running.process.poll(), ""
        if code is None:
            if time.monotonic() < running.until_s:
                return
            message = f"killed after {running.command.timeout_s:g} s"
        _kill(running.process)
        size = running.output.seek(0, os.SEEK_END)
        running.output.seek(max(0, size - MAX_OUTPUT_BYTES))
        text = running.output.read(MAX_OUTPUT_BYTES).decode(errors="replace")
        result = CommandResult(
            running.command.id,
            code,
            displayable_text(text.replace("\r\n", "\n")),
            truncated=size > MAX_OUTPUT_BYTES,
            message=message,
        )
        self._box.post_result(self._node_id, result)
        running.output.close()
        self._running = None


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
