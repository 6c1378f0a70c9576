"""The trainer's hold on the process that writes its checkpoints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from costopt.checkpoint.arena import SharedMemory
from costopt.checkpoint.channel import Channel
from costopt.domain.errors import CheckpointError

PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from costopt.checkpoint.writer import main; main(int(sys.argv[2]))"
)
WRITER_EXITED = "the process that writes checkpoints has ended before the save was done"

_left: set[int] = set()
"""Writers that were let go: they end by themselves, and are not to be waited for."""


class WriterProcess:
    """A running writer. ``pid`` is its process, ``of_pid`` the process that may speak to it."""

    def __init__(self, opening: dict[str, Any]) -> None:
        """Start it and tell it what to write for. Raises CheckpointError."""
        _reap()
        self._channel, theirs = Channel.pair()
        path = json.dumps([entry or os.getcwd() for entry in sys.path])  # noqa: PTH109
        try:
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-c", PROGRAM, path, str(os.getpid())],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            self._channel.close()
            raise CheckpointError(
                f"cannot start the process that writes checkpoints: {error.strerror}"
            ) from error
        finally:
            theirs.close()
        self.of_pid = os.getpid()
        self._let_go = weakref.finalize(self, _let_go, self._channel, self._process, self.of_pid)
        self._send({"op": "open", **opening})

    @property
    def pid(self) -> int:
        """Of the writer."""
        return self._process.pid

    def send(self, slot: int, arena: SharedMemory) -> None:
        """Share the memory of a slot. Raises CheckpointError, as all that follow."""
        message = {"op": "arena", "slot": slot, "size_bytes": arena.size_bytes}
        self._send(message, arena.descriptor)

    def request(self, message: dict[str, Any]) -> None:
        """Send one request; it is answered in its turn."""
        self._send(message)

    def replies(self, *, wait: bool) -> Iterator[dict[str, Any]]:
        """What was answered; with ``wait`` at least one. Raises CheckpointError if it is gone."""
        while self._channel.waits(None if wait else 0):
            received = self._channel.receive()
            if received is None:
                raise CheckpointError(
                    WRITER_EXITED, hint="see whether the machine ran out of memory"
                )
            yield received[0]
            wait = False

    def _send(self, message: dict[str, Any], descriptor: int | None = None) -> None:
        try:
            self._channel.send(message, descriptor)
        except OSError as error:
            raise CheckpointError(
                WRITER_EXITED, hint="see whether the machine ran out of memory"
            ) from error

    def close(self) -> None:
        """Let it finish what it has, and wait for its end."""
        with suppress(OSError):
            self._channel.finish()
        self._process.wait()
        self._let_go()


def _let_go(channel: Channel, process: subprocess.Popen[bytes], of_pid: int) -> None:
    channel.close()
    if os.getpid() == of_pid and process.poll() is None:
        _left.add(process.pid)
        # It is reaped by its id: Popen is not to mourn it.
        process.returncode = 0


def _reap() -> None:
    for pid in tuple(_left):
        with suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                continue
        _left.discard(pid)
