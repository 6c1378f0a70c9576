"""The process that makes snapshots durable, and outlives the trainer that took them.

A trainer starts it in a session of its own and sends it requests for snapshots in shared memory
over a socket, on which it also answers. Its standard input is that socket, or one that listens:
then it serves all ranks of a node that save together, each in a thread. Once a trainer is gone it
finishes the requests it has from it, and after the last it ends.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from costopt.checkpoint.commit import Committer, SaveRequest
from costopt.checkpoint.history import RetentionPolicy
from costopt.checkpoint.identity import JobIdentity
from costopt.checkpoint.manifest import Origin, detect_origin
from costopt.checkpoint.replicas.agent_socket import ReplicaClient, ReplicaWriter, whole_snapshot
from costopt.checkpoint.repository import CheckpointRepository
from costopt.checkpoint.sharded.commit import ShardCommitter, ShardGroup
from costopt.checkpoint.sharded.index import SHARD_CHUNK_BYTES
from costopt.checkpoint.sharded.snapshot import shard_snapshot
from costopt.checkpoint.writer_client import Channel, SharedMemory, peer_pid
from costopt.domain.errors import CheckpointError, CostoptError

PART_BYTES = 64 << 20
POLL_S = 1.0
ORIGIN_TIMEOUT_S = 1.0
NICENESS = 10
"""Training has priority for processors; a trainer that waits for a save needs none."""
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXFSZ)
"""Signals that stop the trainer must not lose its last state; a file too large becomes an error."""


def main() -> None:
    """Serve until all trainers are gone."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    given = socket.socket(fileno=0)
    listens = given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    (_serve_all if listens else _serve)(given)


def _serve_all(listener: socket.socket) -> None:
    """Serve who connects, until none is left.

    Then the listener is shut down: who connects afterwards is refused, and starts another writer;
    who already waits to be accepted still is.
    """
    serving: list[threading.Thread] = []
    listener.settimeout(POLL_S)
    with suppress(OSError):  # shut down, and none waits
        while True:
            with suppress(TimeoutError):
                end, _ = listener.accept()
                serving.append(threading.Thread(target=_serve, args=(end,), daemon=True))
                serving[-1].start()
            if not any(thread.is_alive() for thread in serving):
                listener.shutdown(socket.SHUT_RD)
                listener.settimeout(None)
    listener.close()
    for thread in serving:
        thread.join()


def _serve(end: socket.socket) -> None:
    """Answer one trainer, unless another user's, until it is gone."""
    with end:
        pid, trainer = peer_pid(end), list[int]()
        if pid is None:
            return
        channel = Channel(end)
        with suppress(OSError):
            channel.send({"pid": os.getpid()})
            # A child that the trainer forked may hold the other end open beyond its death.
            trainer.append(os.pidfd_open(pid))
            # What one trainer saves takes no processors of others.
            os.sched_setaffinity(0, os.sched_getaffinity(pid))
        writer = CheckpointWriter(channel)
        while channel.waits(None, *trainer) or channel.waits(0):
            if (received := channel.receive()) is None:
                break
            writer.handle(*received)
        for each in trainer:
            os.close(each)


@dataclass(slots=True)
class CheckpointWriter:
    """Answers one message after the other, in their order."""

    channel: Channel
    arenas: dict[int, SharedMemory] = field(default_factory=dict)
    _committer: Committer | None = None
    _near: ReplicaClient | None = None
    _refusal: CostoptError | None = None
    _origin: Future[Origin] | None = None

    def handle(self, message: dict[str, Any], descriptor: int | None) -> None:
        """Handle one message. Errors are sent as the answer, never raised."""
        try:
            response = self._handle(message, descriptor)
        except Exception as error:  # noqa: BLE001 - whatever it is, the trainer must hear of it
            if not isinstance(error, CostoptError):
                reason = f"{type(error).__name__}: {error}"
                error = CheckpointError(f"the checkpoint writer failed: {reason}")
            said = {"message": error.message, "hint": error.hint, "code": error.code}
            response = {"failed": message.get("ticket"), **said}
        if response is not None:
            with suppress(OSError):  # the trainer is gone
                self.channel.send(response)

    def _handle(self, message: dict[str, Any], descriptor: int | None) -> dict[str, Any] | None:
        match message.pop("op"):
            case "open":
                self._open(message)
            case "arena":
                self._take_arena(message["slot"], message["size_bytes"], descriptor)
            case "resume":
                self._opened().set_parent(message["parent"], message["generation"])
            case "claim":
                self._opened().claim()
                return {"claimed": message["ticket"]}
            case "abandon":
                committer = self._opened()
                assert isinstance(committer, ShardCommitter)
                committer.abandon(message["steps"])
            case "save":
                return self._save(message)
        return None

    def _open(self, message: dict[str, Any]) -> None:
        try:
            saved_by = message.get("identity")
            identity = None if saved_by is None else JobIdentity.decode(saved_by)
            place = CheckpointRepository.open(message["uri"], identity)
        except CostoptError as error:
            self._refusal = error
            return
        self._near = None if message["near"] is None else ReplicaClient(message["near"])
        pool = ThreadPoolExecutor(1)
        self._origin = pool.submit(detect_origin, message["torch_version"])
        pool.shutdown(wait=False)
        keep, origin = RetentionPolicy(**message["keep"]), Origin(message["torch_version"])
        fields = (place, message["generation"], keep, origin, message["parent"], message["writer"])
        claimed, group = message["claimed"], message["group"]
        if group is None:
            self._committer = Committer(*fields, claimed)
        else:
            mesh = tuple((name, size) for name, size in group.pop("mesh"))
            shards = ShardGroup(**group, mesh=mesh)
            self._committer = ShardCommitter(*fields, claimed, SHARD_CHUNK_BYTES, gang=shards)

    def _opened(self) -> Committer:
        if self._committer is None:
            raise self._refusal or CheckpointError(
                "the checkpoint writer received no repository to write to"
            )
        return self._committer

    def _take_arena(self, slot: int, size_bytes: int, descriptor: int | None) -> None:
        assert descriptor is not None
        self.arenas[slot] = SharedMemory(descriptor, size_bytes, writable=False)

    def _save(self, message: dict[str, Any]) -> dict[str, Any]:
        view = memoryview(self.arenas[message["slot"]].map)
        layout_end = message["tensor_bytes"] + message.get("layout_bytes", 0)
        saving = SaveRequest(
            step=message["step"],
            world_size=message["world_size"],
            began_at=message["began_at"],
            files={
                "objects.pt": view[layout_end : message["tensor_bytes"] + message["object_bytes"]],
                **split_files(view, message["tensor_bytes"]),
            },
            labels=tuple((name, value) for name, value in message["labels"]),
            as_delta=message.get("as_delta", False),
            layout=bytes(view[message["tensor_bytes"] : layout_end]),
        )
        near = self._keep_near(message, saving)
        try:
            committer = self._opened()
            if self._origin is not None:
                # Git may take long on a busy disk, but a save seldom waits for it.
                with suppress(TimeoutError):
                    committer.origin = self._origin.result(ORIGIN_TIMEOUT_S)
            committed = committer.commit(saving)
        finally:
            if near is not None:
                near.join()
        return {
            "saved": message["ticket"],
            "name": str(committed.name),
            "at": committed.manifest.at,
            "size_bytes": committed.manifest.own_bytes,
            "save_s": committed.save_s,
        }

    def _keep_near(self, message: dict[str, Any], saving: SaveRequest) -> ReplicaWriter | None:
        if self._near is None:
            return None
        ticket, arena = message["ticket"], self.arenas[message["slot"]]

        def notify(kept: dict[str, Any]) -> None:
            with suppress(OSError):  # the trainer is gone
                self.channel.send({"kept": ticket, **kept})

        committer = self._opened()
        take = shard_snapshot if isinstance(committer, ShardCommitter) else whole_snapshot
        # The commit beside it changes the parent.
        made = partial(take, committer, saving, arena, committer.parent, committer.generation)
        return ReplicaWriter(self._near, made, notify)


def split_files(view: memoryview, tensor_bytes: int) -> dict[str, memoryview]:
    """Return the tensors, with which the memory begins, cut into files of equal length."""
    files = {}
    for number, begin in enumerate(range(0, tensor_bytes, PART_BYTES)):
        end = min(begin + PART_BYTES, tensor_bytes)
        files[f"tensors-{number:05d}.bin"] = view[begin:end]
    return files


START_FIELD = 19
"""The field after the name in /proc/self/stat: starttime, in clock ticks since boot (proc(5))."""


def process_start_time() -> float:
    """Return when this process began, POSIX seconds; the present if that is unknown."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started_s = int(fields[START_FIELD]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return time.time()
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - started_s)
