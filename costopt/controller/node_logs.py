"""Where nodes' logs are read."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from costopt.domain.errors import SpecError, StoreError
from costopt.domain.events import GangFormed, NodeLaunched
from costopt.domain.object_store import ObjectStore
from costopt.domain.ports import EventReader
from costopt.protocol.node_logs import TRAINER_LOGS, LogChunk, NodeLog
from costopt.protocol.tasks import TaskBoard
from costopt.store.address import is_key_part
from costopt.store.folder import is_plain, read_plain

PIECE_BYTES = 256 * 1024


class LogReader(Protocol):
    """What trainers print, in ``store`` and elsewhere."""

    @property
    def store(self) -> ObjectStore:
        """Return the store of the jobs' mailboxes."""
        ...

    def read(self, job: str, node_id: str, after: int) -> LogChunk:
        """What follows byte ``after``. Raises SpecError where there is no such log."""
        ...

    def read_task(self, job: str, task: int) -> TaskLog:
        """What an array's task printed. Raises SpecError where it has no log so far."""
        ...


@dataclass(frozen=True, slots=True)
class TaskLog:
    """What the attempts of a task printed, one after the other."""

    job: str
    task: int
    text: str


def read_task_log(store: ObjectStore, job: str, task: int) -> TaskLog:
    """The log of an array's task. Raises SpecError where it has none so far, and StoreError."""
    attempts = list(TaskBoard(store, job).logs(task))
    if not attempts:
        raise SpecError(
            f"task {task} of job {job!r} has no log so far",
            hint="logs come a few seconds after a task prints; tasks are numbered from 0",
            code="missing",
        )
    texts = (
        f"==> attempt {attempt}\n{text}" if len(attempts) > 1 else text
        for attempt, text in attempts
    )
    return TaskLog(job, task, "".join(texts))


def logged_node(ledger: EventReader, job: str, node_id: str | None) -> str:
    """The node whose log is meant: where none is named, rank 0 of the newest gang.

    Scripts print there. Before the first gang it is the newest node. Raises SpecError where the job
    has had no such node.
    """
    launched = (event.node_id for _, event in ledger.newest(NodeLaunched, job))
    if node_id is None:
        gangs = (gang.node_ids[0] for _, gang in ledger.newest(GangFormed, job))
        found = next(gangs, None) or next(launched, None)
    else:
        found = node_id if node_id in launched else None
    if found is None:
        what = "no node yet" if node_id is None else f"no node {node_id!r}"
        raise SpecError(f"job {job!r} has had {what}", hint="see its events", code="unknown_node")
    return found


class FolderLogs:
    """Logs of nodes that are processes of this machine: one attempt's after the other's."""

    def __init__(self, nodes: Path, store: ObjectStore) -> None:
        self._nodes = nodes
        self._store = store

    @property
    def store(self) -> ObjectStore:
        """Return the store of the jobs' mailboxes."""
        return self._store

    def read_task(self, job: str, task: int) -> TaskLog:
        """What an array's task printed."""
        return read_task_log(self._store, job, task)

    def read(self, job: str, node_id: str, after: int) -> LogChunk:
        """What follows byte ``after``, at most 256 KiB.

        Raises SpecError for an unknown node, StoreError where its log cannot be read.
        """
        folder = self._nodes / node_id
        if not is_key_part(node_id) or folder.is_symlink() or not folder.is_dir():
            raise SpecError(
                f"there is no log of node {node_id!r}", hint="see the job's nodes", code="missing"
            )
        logs = (path for path in folder.glob(TRAINER_LOGS) if is_plain(path))
        try:
            data = _slice(sorted(logs, key=lambda path: path.lstat().st_mtime_ns), after)
        except OSError as error:
            raise StoreError(
                f"cannot read the log of node {node_id}: {error.strerror}",
                hint="see what the job's command writes there",
            ) from error
        text, used = _whole_characters(data)
        return LogChunk(job, node_id, text, after + used, ended=len(data) < PIECE_BYTES)


class StoreLogs:
    """Logs of nodes in a cloud, which their agents keep in the job's store; also of nodes gone."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    @property
    def store(self) -> ObjectStore:
        """Return the store of the jobs' mailboxes."""
        return self._store

    def read_task(self, job: str, task: int) -> TaskLog:
        """What an array's task printed."""
        return read_task_log(self._store, job, task)

    def read(self, job: str, node_id: str, after: int) -> LogChunk:
        """What follows byte ``after``, at most 256 KiB; nothing where the node sent nothing yet.

        Raises StoreError.
        """
        begin, data = NodeLog(self._store, job, node_id).read(after, PIECE_BYTES)
        text, used = _whole_characters(data)
        if begin > after:
            text = f"[costopt: {begin - after:,} bytes are no longer in the store]\n{text}"
        return LogChunk(job, node_id, text, begin + used, ended=not data)


def _whole_characters(data: bytes) -> tuple[str, int]:
    """The text of UTF-8, and how many bytes it takes: half a character waits for its rest."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    waiting, _ = decoder.getstate()
    return text, len(data) - len(waiting)


def _slice(paths: list[Path], after: int) -> bytes:
    """The bytes that follow ``after`` in all the files, one after the other. Raises OSError."""
    found = b""
    for path in paths:
        size = path.lstat().st_size
        if after < size and len(found) < PIECE_BYTES:
            with read_plain(path) as file:
                file.seek(after)
                found += file.read(PIECE_BYTES - len(found))
        after = max(0, after - size)
    return found
