"""The trainer's end of the checkpoint writer: the process, its messages, and shared memory.

The ranks of a node that save a sharded state together share one writer. They meet at a socket in
the abstract namespace (unix(7)), whose name disappears with the writer, however that ends. Who can
bind the name starts the writer, which inherits the socket that listens; all others connect.

``SharedMemory`` is an anonymous file of memory (memfd_create), shared by two processes and freed
with the last of them. It has no name, so a crash leaves nothing behind in /dev/shm, and containers
that allow little of that do not limit it.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import select
import socket
import struct
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from costopt.domain.errors import CheckpointError

PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from costopt.checkpoint.writer import main; main()"
)
WRITER_EXITED = "the process that writes checkpoints ended before the save was complete"
EXITED_HINT = "see whether the machine ran out of memory"

_left: set[int] = set()
"""Detached writers: they end without help and are not waited for."""


class WriterProcess:
    """A running writer. ``pid`` is its process, None until one that another rank started has sent
    it; ``of_pid`` is the only process that may send to it.
    """

    def __init__(self, opening: dict[str, Any], shared: str | None = None) -> None:
        """Start it, unless another process of this node has with an equal ``shared``, and send it
        ``opening``. Raise CheckpointError if it cannot start.
        """
        _reap()
        ours, theirs = _connect(shared)
        self._channel = Channel(ours)
        self._process = None if theirs.fileno() < 0 else self._start(theirs)
        self.pid = None if self._process is None else self._process.pid
        self.of_pid = os.getpid()
        self._let_go = weakref.finalize(self, _let_go, self._channel, self._process, self.of_pid)
        self._send({"op": "open", **opening})

    def _start(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        path = json.dumps([entry or os.getcwd() for entry in sys.path])  # noqa: PTH109
        try:
            return subprocess.Popen(  # noqa: S603
                [sys.executable, "-c", PROGRAM, path],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "MALLOC_ARENA_MAX": "1"},  # its threads allocate little
            )
        except OSError as error:
            self._channel.close()
            raise CheckpointError(
                f"cannot start the process that writes checkpoints: {error.strerror}"
            ) from error
        finally:
            theirs.close()

    def send(self, slot: int, arena: SharedMemory) -> None:
        """Share the memory of a slot. Raise CheckpointError if the writer is gone, as all that
        follow.
        """
        message = {"op": "arena", "slot": slot, "size_bytes": arena.size_bytes}
        self._send(message, arena.descriptor)

    def request(self, message: dict[str, Any]) -> None:
        """Send one request; requests are answered in order."""
        self._send(message)

    def replies(self, *, wait: bool) -> Iterator[dict[str, Any]]:
        """Yield the answers; with ``wait`` at least one. Raise CheckpointError if the writer is
        gone.
        """
        while self._channel.waits(None if wait else 0):
            received = self._channel.receive()
            if received is None:
                with suppress(OSError):
                    # Who connects again must not reach a socket that is about to be closed.
                    ended = os.pidfd_open(self.pid or 0)
                    _ready(EXIT_TIMEOUT_S, ended)
                    os.close(ended)
                raise CheckpointError(WRITER_EXITED, hint=EXITED_HINT)
            if "pid" in received[0]:
                self.pid = received[0]["pid"]
                continue
            yield received[0]
            wait = False

    def _send(self, message: dict[str, Any], descriptor: int | None = None) -> None:
        try:
            self._channel.send(message, descriptor)
        except OSError as error:
            raise CheckpointError(WRITER_EXITED, hint=EXITED_HINT) from error

    def close(self) -> None:
        """Let it finish our requests, and wait for that; then it ends, unless others have it."""
        with suppress(OSError):
            self._channel.finish()
            while self._channel.receive():
                pass
        self._let_go()


def _let_go(channel: Channel, process: subprocess.Popen[bytes] | None, of_pid: int) -> None:
    channel.close()
    if process is not None and os.getpid() == of_pid and process.poll() is None:
        _left.add(process.pid)
        # It is reaped by its id, so Popen must not wait for it.
        process.returncode = 0


def _reap() -> None:
    for pid in tuple(_left):
        with suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                continue
        _left.discard(pid)


CONNECT_TRIES = 100
CONNECT_PAUSE_S = 0.01
EXIT_TIMEOUT_S = 1.0
CREDENTIALS = struct.Struct("3i")
"""struct ucred of SO_PEERCRED: pid, uid, gid."""


def _connect(name: str | None) -> tuple[socket.socket, socket.socket]:
    """Return a connection to the writer of that name, and the socket to start it with: closed if it
    runs. Without a name, or where that is impossible, the writer is this process's own.
    """
    for _ in range(CONNECT_TRIES if name else 0):
        ours, theirs = (socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in "12")
        ours.setblocking(False)
        with suppress(OSError):
            address = writer_address(str(name))
            if ours.connect_ex(address) == 0:
                theirs.close()
            else:  # this fails where another does the same, or a writer that ends has the name yet
                theirs.bind(address)
                theirs.listen()
                ours.connect(address)
            if peer_pid(ours) is not None:
                ours.setblocking(True)
                return ours, theirs
        ours.close()
        theirs.close()
        time.sleep(CONNECT_PAUSE_S)
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def writer_address(name: str) -> str:
    """Return the socket's name, another one in other namespaces: they may see other files."""
    spaces = [Path(f"/proc/self/ns/{kind}").stat().st_ino for kind in ("mnt", "pid")]
    key = f"{name} {os.getuid()} {spaces}"
    return f"\0costopt-writer-{hashlib.sha256(key.encode()).hexdigest()}"


def peer_pid(link: socket.socket) -> int | None:
    """Return the process at the other end of a Unix socket; None if it is another user's."""
    found = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, user, _ = CREDENTIALS.unpack(found)
    return int(pid) if user == os.getuid() else None


MAX_BYTES = 1 << 16


class Channel:
    """One end of a channel. A message is a JSON object, sent atomically, with at most one
    descriptor.
    """

    def __init__(self, end: socket.socket) -> None:
        self.end = end

    def send(self, message: dict[str, Any], descriptor: int | None = None) -> None:
        """Send a message. Raise OSError if the other end is gone."""
        given = [] if descriptor is None else [descriptor]
        socket.send_fds(self.end, [json.dumps(message).encode()], given)

    def waits(self, timeout_s: float | None, *until: int) -> bool:
        """Whether it can receive in ``timeout_s`` (None: for ever), before ``until`` are ready."""
        return self.end.fileno() in _ready(timeout_s, self.end.fileno(), *until)

    def receive(self) -> tuple[dict[str, Any], int | None] | None:
        """Return the next message and its descriptor, or None if the other end is gone."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self.end, MAX_BYTES, 1)
        except ConnectionResetError:
            return None
        if not data:
            return None
        message: dict[str, Any] = json.loads(data)
        return message, descriptors[0] if descriptors else None

    def finish(self) -> None:
        """Announce that nothing more will be sent."""
        self.end.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close this end."""
        self.end.close()


def _ready(timeout_s: float | None, *descriptors: int) -> list[int]:
    poll = select.poll()  # select(2) takes none above 1,023, and trainers may have more
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [ready for ready, _ in poll.poll(None if timeout_s is None else timeout_s * 1000)]


PAGE_BYTES = 2 << 20


class SharedMemory:
    """``size_bytes`` of memory behind a descriptor that can be passed to another process."""

    def __init__(self, descriptor: int, size_bytes: int, *, writable: bool) -> None:
        self.descriptor = descriptor
        self.size_bytes = size_bytes
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self.map = mmap.mmap(descriptor, size_bytes, mmap.MAP_SHARED, protection)
        weakref.finalize(self, os.close, descriptor)

    @classmethod
    def create(cls, size_bytes: int) -> SharedMemory:
        """Reserve the memory now, so that its lack is an error here and not a crash while copying.

        Raise CheckpointError if there is not enough.
        """
        rounded = max(1, -(-size_bytes // PAGE_BYTES)) * PAGE_BYTES
        descriptor = -1
        try:
            descriptor = os.memfd_create("costopt-checkpoint", os.MFD_CLOEXEC)
            os.posix_fallocate(descriptor, 0, rounded)
            return cls(descriptor, rounded, writable=True)
        except OSError as error:
            if descriptor >= 0:
                os.close(descriptor)
            raise CheckpointError(
                f"no memory for a snapshot of {size_bytes / 2**20:.0f} MiB: {error.strerror}",
                hint="leave memory for a copy of the state, which is copied before it is written",
                code="no_memory",
            ) from error
