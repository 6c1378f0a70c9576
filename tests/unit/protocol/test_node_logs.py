"""Trainers' logs on their way from a node through a store to who reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from costopt.agent import log_upload
from costopt.agent.log_upload import LogUpload
from costopt.controller import node_logs as logs
from costopt.controller.node_logs import StoreLogs
from costopt.domain.errors import StoreError
from costopt.domain.object_store import ObjectStore
from costopt.protocol import node_logs
from costopt.protocol.node_logs import MAX_SEGMENT_BYTES, NodeLog
from costopt.store import open_store
from costopt.store.folder import FileStore
from tests.support.errors import has_code
from tests.support.live_run import wait_until
from tests.support.object_stores import served_s3

NODE = "i-1"
PATIENCE_S = 120.0


@dataclass
class Failing(FileStore):
    """A folder that refuses to be written while ``down``; ``late`` writes and refuses then."""

    root: Path
    down: bool = False
    late: bool = False
    read: list[str] = field(default_factory=list)

    def put(self, key: str, data: bytes) -> None:
        if not self.down:
            super().put(key, data)
        if self.down or self.late:
            raise StoreError("the store is down")

    def get(self, key: str, max_bytes: int | None = None) -> bytes | None:
        self.read.append(key)
        return super().get(key, max_bytes)


@dataclass
class Node:
    """A node's folder and its upload, which sends when it is asked to."""

    store: ObjectStore
    folder: Path
    upload: LogUpload = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.upload = LogUpload(NodeLog(self.store, "job", NODE), self.folder, 3600.0)
        self.upload.start()

    def print(self, text: str | bytes, attempt: int = 1) -> None:
        """What a trainer writes."""
        data = text if isinstance(text, bytes) else text.encode()
        with (self.folder / f"trainer-{attempt:06d}.log").open("ab") as file:
            file.write(data)

    def kept(self, text: str | bytes, attempt: int = 1) -> None:
        """The same, sent."""
        self.print(text, attempt)
        self.upload.flush(PATIENCE_S)

    def text(self, after: int = 0) -> str:
        """All that is read from there on, piece by piece."""
        reader, text = StoreLogs(self.store), ""
        while (piece := reader.read("job", NODE, after)).text:
            text += piece.text
            after = piece.next_byte
        return text

    def again(self) -> Node:
        """The agent is started again."""
        self.upload.close(PATIENCE_S)
        return Node(self.store, self.folder)


@pytest.fixture(scope="module")
def s3_url() -> Iterator[str]:
    with served_s3("runs") as (url, _):
        yield url


@pytest.fixture(params=["folder", "s3"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ObjectStore:
    if request.param == "folder":
        return FileStore(tmp_path / "store")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", request.getfixturevalue("s3_url"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return open_store(f"s3://runs/{tmp_path.name}")


@pytest.fixture
def node(store: ObjectStore, tmp_path: Path) -> Iterator[Node]:
    node = Node(store, tmp_path / "node")
    yield node
    node.upload.close(PATIENCE_S)


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[Node]:
    node = Node(Failing(tmp_path / "store"), tmp_path / "node")
    yield node
    node.upload.close(PATIENCE_S)


def test_what_trainers_print_is_read_from_any_byte_on(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"Schritt {number} █ 🙂\n" for number in range(12)]
    for number, line in enumerate(lines):
        node.kept(line, attempt=1 + number // 5)
    whole = "".join(lines)
    for size in (7, 64, 1 << 18):
        monkeypatch.setattr(logs, "PIECE_BYTES", size)
        assert node.text() == whole
    for number in range(len(lines)):
        after = len("".join(lines[:number]).encode())
        assert node.text(after) == "".join(lines[number:])
    end = len(whole.encode())
    nothing = StoreLogs(node.store).read("job", NODE, end)
    assert (nothing.text, nothing.next_byte) == ("", end)


def test_pieces_are_never_rewritten(node: Node) -> None:
    node.kept("one\n")
    (first,) = node.store.keys("jobs/job/logs/")
    assert first == "jobs/job/logs/i-1/000000000000000.000001.000000000000004"
    node.kept("two\n")
    node.upload.flush(PATIENCE_S)
    assert node.store.keys("jobs/job/logs/")[0] == first
    assert len(node.store.keys("jobs/job/logs/")) == 2
    assert node.store.get(first) == b"one\n"


def test_a_restarted_agent_goes_on_where_it_was(node: Node) -> None:
    node.kept("one\n")
    again = node.again()
    again.kept("two\n")
    again = again.again()
    again.kept("three\n", attempt=2)
    again.upload.close(PATIENCE_S)
    assert node.text() == "one\ntwo\nthree\n"


def test_a_node_that_has_sent_nothing_has_an_empty_log(node: Node) -> None:
    assert node.text() == ""


def test_half_a_character_at_the_end_of_a_piece_is_whole_in_the_log(node: Node) -> None:
    smile = "🙂".encode()
    node.kept(b"a" + smile[:2])
    assert node.text() == "a"
    node.kept(smile[2:])
    assert node.text() == "a🙂"


def test_a_flood_is_cut_and_says_so(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_upload, "MAX_SEGMENT_BYTES", log_upload.MARKER_BYTES + 25)
    node.kept("first\n")
    node.kept("".join(f"line {number}\n" for number in range(100)))
    node.kept("last\n")
    left_out = len("".join(f"line {number}\n" for number in range(97)))
    assert node.text() == (
        f"first\n\n[costopt: {left_out} bytes are omitted here]\nline 97\nline 98\nline 99\nlast\n"
    )


def test_a_log_that_is_full_keeps_only_its_end(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_upload, "MAX_BYTES", 10)
    monkeypatch.setattr(log_upload, "TAIL_BYTES", 14)
    node.kept("0123456789\n")
    node.print("".join(f"line {number}\n" for number in range(10)))
    node.upload._try_to_send(last=False)
    full = "0123456789\n" + log_upload.TRUNCATION_MARKER
    assert node.text() == full
    node.upload.flush(PATIENCE_S)
    assert node.text() == f"{full}\n[costopt: 63 bytes are omitted here]\nline 9\n"


def test_a_store_that_refuses_is_asked_again_and_reported_once(
    failing: Node, capfd: pytest.CaptureFixture[str]
) -> None:
    store = failing.store
    assert isinstance(store, Failing)
    store.down = True
    failing.kept("one\n")
    failing.kept("two\n")
    assert capfd.readouterr().err == "the log cannot be uploaded: the store is down\n"
    assert failing.text() == ""
    store.down = False
    failing.kept("three\n")
    assert failing.text() == "one\ntwo\nthree\n"


def test_what_was_refused_and_arrived_is_not_sent_twice(failing: Node) -> None:
    store = failing.store
    assert isinstance(store, Failing)
    store.late = True
    failing.kept("one\n")
    store.late = False
    failing.kept("two\n")
    assert failing.text() == "one\ntwo\n"


def test_what_the_bucket_has_cleared_is_reported(failing: Node) -> None:
    for text in ("one\n", "two\n", "three\n"):
        failing.kept(text)
    keys = failing.store.keys("jobs/job/logs/")
    failing.store.delete(keys[1])
    gap = "[costopt: 4 bytes are no longer in the store]\n"
    assert failing.text() == f"one\n{gap}three\n"
    failing.store.delete(keys[0])
    assert failing.text() == "[costopt: 8 bytes are no longer in the store]\nthree\n"


def test_a_gap_wider_than_what_is_read_at_once_is_not_an_end(
    failing: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in ("one\n", "two\n" * 9, "three\n"):
        failing.kept(text)
    failing.store.delete(failing.store.keys("jobs/job/logs/")[1])
    monkeypatch.setattr(logs, "PIECE_BYTES", 8)
    assert failing.text() == "one\n[costopt: 36 bytes are no longer in the store]\nthree\n"


def test_many_small_pieces_are_read_part_by_part(
    failing: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = failing.store
    assert isinstance(store, Failing)
    monkeypatch.setattr(node_logs, "MAX_SEGMENTS", 3)
    for number in range(8):
        failing.kept(f"{number}\n")
    store.read.clear()
    first = StoreLogs(store).read("job", NODE, 0)
    assert (first.text, first.ended, len(store.read)) == ("0\n1\n2\n3\n", False, 4)
    assert failing.text() == "".join(f"{number}\n" for number in range(8))
    assert StoreLogs(store).read("job", NODE, 16).ended


def test_a_flood_without_lines_keeps_its_end(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_upload, "MAX_SEGMENT_BYTES", log_upload.MARKER_BYTES + 10_000)
    node.kept("\r".join(f"{number:9d}" for number in range(2000)) + "\n")
    note, _, end = node.text().lstrip().partition("\n")
    assert note == "[costopt: 10,000 bytes are omitted here]"
    assert end.endswith("     1998\r     1999\n")


def test_who_follows_reads_no_old_piece_again(failing: Node) -> None:
    store = failing.store
    assert isinstance(store, Failing)
    for number in range(9):
        failing.kept(f"{number}\n")
    store.read.clear()
    failing.kept("new\n")
    assert failing.text(after=18) == "new\n"
    assert set(store.read) == {store.keys("jobs/")[-1]}


def test_it_is_sent_automatically_after_a_while(tmp_path: Path) -> None:
    store, folder = FileStore(tmp_path / "store"), tmp_path / "node"
    folder.mkdir()
    upload = LogUpload(NodeLog(store, "job", NODE), folder, 0.02)
    upload.start()
    (folder / "trainer-000001.log").write_text("hello\n")
    wait_until(lambda: bool(store.keys("jobs/job/logs/")), "the first piece", PATIENCE_S)
    upload.close(PATIENCE_S)
    assert StoreLogs(store).read("job", NODE, 0).text == "hello\n"


def test_a_piece_that_no_agent_writes_is_not_read(node: Node) -> None:
    node.kept("begins\n")
    name = f"jobs/job/logs/{NODE}/{7:015d}.{1:06d}.{9:015d}"
    node.store.put(name, bytes(MAX_SEGMENT_BYTES + 1))
    with pytest.raises(StoreError, check=has_code("too_large")):
        node.text()
