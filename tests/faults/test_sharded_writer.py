"""The ranks of a node share one process that writes: who begins, who dies, and who is left."""

from __future__ import annotations

import os
import random
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from costopt.checkpoint.history import RetentionPolicy
from costopt.checkpoint.repository import CheckpointRepository
from costopt.checkpoint.writer_client import SharedMemory, WriterProcess, writer_address
from costopt.domain.errors import CheckpointError
from costopt.store.folder import FileStore
from tests.faults.test_sharded_kill import stored_step, until
from tests.support.process_state import is_running, many_open_files, pause
from tests.support.shard_gang import ShardGang

KILLS = int(os.environ.get("COSTOPT_SHARDED_KILLS", "12"))
RANKS = 3
KILLED = ("writer", "rank", "all", "everything")
SAVED = "saved"
UNPRIVILEGED = 65_534
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="memory is shared by descriptors"),
    pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning"),
]


class Rank:
    """What a trainer does with its writer. ``shared`` is that of its node."""

    def __init__(self, gang: ShardGang, rank: int, shared: str) -> None:
        self.gang, self.rank, self.shared = gang, rank, shared
        self.writer: WriterProcess | None = None

    def begin(self, step: int) -> None:
        """Send the writer, which is started if there is none, this rank's part of a state."""
        if self.writer is not None and self._has_ended():
            self.writer = None
        if self.writer is None:
            self.writer = self.connect()
        saving, arena = self.gang.request(self.rank, step), SharedMemory.create(1 << 20)
        tensors, objects = saving.files["tensors-00000.bin"], saving.files["objects.pt"]
        data = bytes(tensors) + saving.layout + bytes(objects)
        arena.map[: len(data)] = data
        self.writer.send(0, arena)
        sizes = {"layout_bytes": len(saving.layout), "tensor_bytes": len(tensors)}
        sizes["object_bytes"] = len(saving.layout) + len(objects)
        fields: dict[str, Any] = {
            "step": step,
            "world_size": self.gang.size,
            "began_at": time.monotonic(),
        }
        fields |= {"ticket": step, "slot": 0, "labels": []}
        self.writer.request({"op": "save", **fields, **sizes})

    def _has_ended(self) -> bool:
        """As a trainer hears that polls."""
        assert self.writer is not None
        try:
            return bool(list(self.writer.replies(wait=False)))
        except CheckpointError:
            return True

    def connect(self) -> WriterProcess:
        """As a rank that begins to save."""
        committer = self.gang.committers[self.rank]
        opening = {
            "uri": committer.place.uri, "near": None, "generation": self.gang.generation,
            "keep": asdict(RetentionPolicy(2)), "torch_version": "2", "parent": None,
            "writer": self.gang.token, "claimed": True, "group": asdict(committer.gang),
        }  # fmt: skip
        return WriterProcess(opening, self.shared)

    def outcome(self) -> str:
        """SAVED, or what failed; a writer that has ended is forgotten."""
        try:
            assert self.writer is not None
            response = next(self.writer.replies(wait=True))
        except CheckpointError as error:
            self.writer = None
            return error.message
        return SAVED if "saved" in response else str(response["message"])

    def save(self, step: int) -> str:
        """Begin, and wait."""
        try:
            self.begin(step)
        except CheckpointError as error:
            self.writer = None
            return error.message
        return self.outcome()

    def close(self) -> None:
        """As when training ends."""
        if self.writer is not None:
            self.writer.close()
        self.writer = None

    @property
    def pid(self) -> int:
        """The writer, which has answered."""
        assert self.writer is not None
        assert self.writer.pid is not None
        return self.writer.pid


class Node:
    """The ranks of one node, here threads that do everything at once."""

    def __init__(self, folder: Path, size: int = RANKS) -> None:
        self.gang = ShardGang(lambda: CheckpointRepository(FileStore(folder), str(folder)), size)
        self.ranks = [Rank(self.gang, rank, f"{self.gang.token} 0") for rank in range(size)]
        self.pool = ThreadPoolExecutor(size)

    def save(self, step: int) -> list[str]:
        """How it ended for each."""
        return list(self.pool.map(lambda rank: rank.save(step), self.ranks))

    def close(self) -> None:
        """As when training ends."""
        list(self.pool.map(Rank.close, self.ranks))

    @property
    def pids(self) -> set[int]:
        """The writers of the ranks."""
        return {rank.pid for rank in self.ranks}


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Callable[[str], Node]]:
    made: list[Node] = []

    def make(name: str) -> Node:
        made.append(Node(tmp_path / name))
        return made[-1]

    yield make
    for node in made:
        node.close()
        node.pool.shutdown()


def forked(work: Callable[[], None]) -> int:
    """A process that does the work."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return child


def end(child: int) -> None:
    """A child of this process."""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_the_ranks_of_a_node_share_a_writer_and_gangs_do_not(
    nodes: Callable[[str], Node], tmp_path: Path
) -> None:
    first, second = nodes("first"), nodes("second")
    for step in (1, 2):
        assert first.save(step) == second.save(step) == [SAVED] * RANKS
    (one,), (other,) = first.pids, second.pids
    assert one != other
    assert stored_step(tmp_path / "first") == stored_step(tmp_path / "second") == 2
    first.close()
    until(lambda: not is_running(one))
    assert is_running(other)


def test_a_killed_writer_fails_all_ranks_and_they_start_one_again(
    nodes: Callable[[str], Node], tmp_path: Path
) -> None:
    node = nodes("store")
    assert node.save(1) == [SAVED] * RANKS
    for step in (3, 5, 7):
        (writer,) = node.pids
        pause(writer)
        begun = node.pool.map(lambda rank: rank.save(step), node.ranks)  # noqa: B023 - run at once
        time.sleep(0.1)
        os.kill(writer, signal.SIGKILL)
        assert all("ended before the save" in each for each in begun)
        assert node.save(step + 1) == [SAVED] * RANKS
        (again,) = node.pids
        assert again != writer
    assert stored_step(tmp_path / "store") == 8


def test_a_trainer_with_over_a_thousand_open_files_saves(nodes: Callable[[str], Node]) -> None:
    with many_open_files():
        node = nodes("store")
        assert node.save(1) == [SAVED] * RANKS
        (writer,) = node.pids
        os.kill(writer, signal.SIGKILL)
        until(lambda: not is_running(writer))
        assert node.save(2) == [SAVED] * RANKS


def test_who_connects_while_the_writer_ends_is_served(tmp_path: Path) -> None:
    """By that one, which looks each second whether anyone is left, or by another."""
    gang = ShardGang(lambda: CheckpointRepository(FileStore(tmp_path), str(tmp_path)), 2)
    pids: set[int | None] = set()
    left = Barrier(2)

    def come_and_go(rank: int) -> None:
        draw = random.Random(28)  # both are away for as long
        for ticket in range(12):
            writer = Rank(gang, rank, gang.token).connect()
            writer.request({"op": "claim", "ticket": ticket})
            (response,) = writer.replies(wait=True)
            assert response == {"claimed": ticket}
            pids.add(writer.pid)
            writer.close()
            left.wait(60)
            time.sleep(draw.uniform(0.95, 1.1))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(come_and_go, range(2)))
    assert len(pids) > 1
    until(lambda: not any(is_running(pid) for pid in pids if pid))


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_another_user_s_process_is_refused(nodes: Callable[[str], Node]) -> None:
    node = nodes("store")
    assert node.save(1) == [SAVED] * RANKS
    address = writer_address(node.ranks[0].shared)

    def connect() -> None:
        os.setuid(UNPRIVILEGED)
        link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        link.connect(address)
        assert link.recv(100) == b""

    assert os.waitpid(forked(connect), 0)[1] == 0
    assert node.save(2) == [SAVED] * RANKS
    assert len(node.pids) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
@pytest.mark.parametrize("listens", [True, False])
def test_where_another_user_has_the_name_each_rank_has_a_writer(
    nodes: Callable[[str], Node], *, listens: bool
) -> None:
    node = nodes("store")
    address = writer_address(node.ranks[0].shared)
    ours, theirs = Pipe()

    def bind() -> None:
        os.setuid(UNPRIVILEGED)
        link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        link.bind(address)
        if listens:
            link.listen()
        theirs.send("")
        signal.pause()

    child = forked(bind)
    ours.recv()
    try:
        assert node.save(1) == [SAVED] * RANKS
        assert len(node.pids) == RANKS
    finally:
        end(child)


def wait_for_end(pid: int) -> None:
    """Of all threads of a process: until then its connections stay open."""
    with suppress(ProcessLookupError):
        end_of = os.pidfd_open(pid)
        ended = select.poll()
        ended.register(end_of, select.POLLIN)
        assert ended.poll(200_000)
        os.close(end_of)


class Process:
    """A rank as a process, that saves on request."""

    def __init__(self, rank: Rank) -> None:
        self.pipe, theirs = Pipe()
        self.pid = forked(lambda: self._answer(rank, theirs))
        theirs.close()

    @staticmethod
    def _answer(rank: Rank, requests: Connection) -> None:
        while True:
            what, step = requests.recv()
            if what == "begin":
                rank.begin(step)
                requests.send((SAVED, 0))
            elif what == "fork":  # as a data loader does: it holds the connection
                requests.send((SAVED, forked(signal.pause)))
            else:
                outcome = rank.save(step)
                requests.send((outcome, 0 if rank.writer is None else rank.pid))

    def said(self) -> tuple[str, int] | None:
        """What it answered; None if it was killed."""
        try:
            response: tuple[str, int] = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            return None
        return response

    def kill(self) -> None:
        """Unless it was."""
        if self.pid:
            end(self.pid)
        self.pid = 0


class Processes:
    """The ranks of a gang, on one node."""

    def __init__(self, folder: Path, generation: int = 1) -> None:
        gang = ShardGang(
            lambda: CheckpointRepository(FileStore(folder), str(folder)),
            RANKS, generation, timeout_s=5.0, takeover_s=0.1, keep=2,
        )  # fmt: skip
        self.ranks = [Process(Rank(gang, rank, gang.token)) for rank in range(RANKS)]

    def ask(self, what: str, step: int = 0) -> list[tuple[str, int]]:
        """What each answers."""
        self.tell(what, step)
        return self.said()

    def tell(self, what: str, step: int) -> None:
        """Let them begin."""
        for rank in self.ranks:
            rank.pipe.send((what, step))

    def said(self) -> list[tuple[str, int]]:
        """What those answered that live."""
        return [each for each in map(Process.said, self.ranks) if each]

    def save(self, step: int) -> int:
        """The writer, which has saved."""
        ((outcome, writer),) = set(self.ask("save", step))
        assert outcome == SAVED
        return writer

    def kill(self) -> None:
        """All of them."""
        for rank in self.ranks:
            rank.kill()
            rank.pipe.close()


@pytest.fixture
def gangs(tmp_path: Path) -> Iterator[Callable[[int], Processes]]:
    made: list[Processes] = []

    def make(generation: int) -> Processes:
        made.append(Processes(tmp_path, generation))
        return made[-1]

    yield make
    for gang in made:
        gang.kill()


@pytest.mark.parametrize("forks", [True, False])
def test_the_last_save_survives_all_ranks(
    gangs: Callable[[int], Processes], tmp_path: Path, *, forks: bool
) -> None:
    gang = gangs(1)
    writer = gang.save(1)
    children = [child for _, child in gang.ask("fork")] if forks else []
    pause(writer)
    assert gang.ask("begin", 2) == [(SAVED, 0)] * RANKS
    gang.kill()
    os.kill(writer, signal.SIGCONT)
    until(lambda: not is_running(writer))
    for child in children:
        assert is_running(child)
        os.kill(child, signal.SIGKILL)
    assert stored_step(tmp_path) == 2


def test_no_kill_loses_a_step_that_was_reported(
    gangs: Callable[[int], Processes], tmp_path: Path
) -> None:
    draw = random.Random(28)
    newest = 0
    for generation in range(1, KILLS + 1):
        gang = gangs(generation)
        writers = [gang.save(newest + 1)]
        gang.tell("save", newest + 2)
        time.sleep(draw.uniform(0.0, 0.06))
        killed = KILLED[generation % len(KILLED)]
        if killed in ("writer", "everything"):
            os.kill(writers[0], signal.SIGKILL)
        for rank in {"rank": [draw.choice(gang.ranks)], "writer": []}.get(killed, gang.ranks):
            rank.kill()
        reported = [outcome for outcome, _ in gang.said()]
        newest += 2 if SAVED in reported else 1
        if killed == "writer":
            newest += 2
            wait_for_end(writers[0])
            writers.append(gang.save(newest))
            assert writers[0] != writers[1]
        gang.kill()
        for writer in writers:
            wait_for_end(writer)
        stored = stored_step(tmp_path)
        assert stored >= newest, "a save that was reported is not there"
        newest = stored
    assert len(list(tmp_path.glob("step-*"))) <= 5, "what was cut short stays for ever"
