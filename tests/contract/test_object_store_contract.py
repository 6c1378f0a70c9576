"""What every object store must do: one suite for a folder, S3 and Google Cloud Storage."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from costopt.domain.errors import StoreError
from costopt.domain.object_store import ObjectStore
from costopt.store import open_store
from costopt.store.ranges import read_ranges
from tests.support.errors import has_code
from tests.support.object_stores import Unreliable, served_gcs, served_s3

BUCKET = "training"
PLACES = count()
REMOTE = ("s3", "gs")


@dataclass(frozen=True, slots=True)
class Place:
    """Where stores can be opened; ``front`` stands before a remote one."""

    uri: str
    front: Unreliable | None

    def open(self, folder: str = "run") -> ObjectStore:
        return open_store(f"{self.uri}/{folder}")


@pytest.fixture(scope="module")
def s3() -> Iterator[tuple[str, Unreliable]]:
    with served_s3(BUCKET) as served:
        yield served


@pytest.fixture(scope="module")
def gcs() -> Iterator[tuple[str, Unreliable]]:
    with served_gcs(BUCKET) as served:
        yield served


@pytest.fixture(params=["folder", *REMOTE])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A place of its own for each test."""
    own = f"{request.node.originalname}-{next(PLACES)}"
    if request.param == "folder":
        return Place(tmp_path.as_uri(), None)
    if request.param == "s3":
        url, front = request.getfixturevalue("s3")
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        return Place(f"s3://{BUCKET}/{own}", front)
    url, front = request.getfixturevalue("gcs")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
    return Place(f"gs://{BUCKET}/{own}", front)


@pytest.fixture
def store(place: Place) -> ObjectStore:
    return place.open()


remote_only = pytest.mark.parametrize("place", REMOTE, indirect=True)


def test_put_get_delete(store: ObjectStore) -> None:
    assert store.get("a/b.json") is None
    store.put("a/b.json", b"1")
    store.put("a/b.json", b"2")
    assert store.get("a/b.json") == b"2"
    store.delete("a/b.json")
    store.delete("a/b.json")
    store.delete("never/was")
    assert store.get("a/b.json") is None


def test_bytes_of_every_kind_come_back(store: ObjectStore) -> None:
    for number, data in enumerate((b"", b"\0", bytes(range(256)) * 10)):
        store.put(f"data/{number}", data)
        assert store.get(f"data/{number}") == data


def test_keys_are_sorted_and_begin_with_the_prefix(store: ObjectStore) -> None:
    assert store.keys("") == []
    for key in ("jobs/b/x", "jobs/a/y", "jobs/ab", "other", "jobs/a:1,2@3+4=5%", "jobs/Z"):
        store.put(key, b"1")
    assert store.keys("jobs/a") == ["jobs/a/y", "jobs/a:1,2@3+4=5%", "jobs/ab"]
    assert store.keys("jobs/") == [
        "jobs/Z", "jobs/a/y", "jobs/a:1,2@3+4=5%", "jobs/ab", "jobs/b/x",
    ]  # fmt: skip
    assert store.keys("nothing/") == []
    assert len(store.keys("")) == 6
    assert store.get("jobs/a:1,2@3+4=5%") == b"1"


def test_keys_are_listed_from_one_on(store: ObjectStore) -> None:
    for key in ("logs/0", "logs/1", "logs/2", "logs/3", "logs/4", "other"):
        store.put(key, b"1")
    assert store.keys("logs/", "logs/1") == ["logs/2", "logs/3", "logs/4"]
    assert store.keys("logs/", "logs/1a") == ["logs/2", "logs/3", "logs/4"]
    assert store.keys("logs/", "logs/4") == []


def test_only_so_many_keys_are_listed(store: ObjectStore) -> None:
    for number in range(5):
        store.put(f"a/{number}", b"")
    assert store.keys("a/", most=3) == ["a/0", "a/1", "a/2"]
    assert store.keys("a/", "a/1", most=2) == ["a/2", "a/3"]
    assert len(store.keys("a/", most=9)) == 5


def test_no_more_is_read_than_was_said(store: ObjectStore) -> None:
    store.put("a/big", bytes(3 << 20))
    assert len(store.get("a/big", 3 << 20) or b"") == 3 << 20
    assert store.get("a/none", 1) is None
    with pytest.raises(StoreError, check=has_code("too_large")):
        store.get("a/big", 1000)


def test_a_range_is_read(store: ObjectStore) -> None:
    data = bytes(range(256)) * 64
    store.put("a/data", data)
    for start, end in ((0, 1), (100, 5000), (0, len(data)), (7, 7)):
        assert store.get_range("a/data", start, end) == data[start:end]
    assert store.get_range("a/none", 0, 1) is None
    assert store.get_range("a/none", 1, 1) is None
    for start, end in ((0, len(data) + 1), (len(data) + 5, len(data) + 9)):
        with pytest.raises(StoreError, check=has_code("too_short")):
            store.get_range("a/data", start, end)


def test_ranges_come_back_in_their_order(store: ObjectStore) -> None:
    data = os.urandom(300_000)
    store.put("a/data", data)
    spans = [(200_000, 300_000), (5, 10), (10, 11), (150_000, 250_000)]
    found = read_ranges(store, [("a/data", *span) for span in spans])
    assert [bytes(piece) for piece in found] == [data[start:end] for start, end in spans]
    with pytest.raises(StoreError, check=has_code("missing")):
        list(read_ranges(store, [("a/none", 0, 5)]))


def test_two_stores_of_a_bucket_do_not_meet(place: Place) -> None:
    place.open("one").put("key", b"1")
    place.open("two").put("key", b"2")
    assert place.open("one").get("key") == b"1"
    assert place.open("one").keys("") == ["key"]


@pytest.mark.parametrize(
    "key", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/.hidden", "a\0b", "a/", ".", "a\nb"]
)
def test_a_key_that_could_leave_the_store_is_refused(store: ObjectStore, key: str) -> None:
    with pytest.raises(StoreError, check=has_code("invalid_key")):
        store.put(key, b"x")
    with pytest.raises(StoreError, check=has_code("invalid_key")):
        store.get(key)
    with pytest.raises(StoreError, check=has_code("invalid_key")):
        store.replace(key, b"x", None)


def test_put_if_absent_keeps_what_is_there(store: ObjectStore) -> None:
    assert store.put_if_absent("one", b"first")
    assert not store.put_if_absent("one", b"second")
    assert not store.put_if_absent("one", b"first")
    assert store.get("one") == b"first"


def test_of_many_that_put_if_absent_one_wins(store: ObjectStore) -> None:
    won = race(8, lambda number: store.put_if_absent("one", str(number).encode() * 100_000))
    assert len(won) == 1
    assert store.get("one") == str(won[0]).encode() * 100_000


def test_replace_compares_and_swaps(store: ObjectStore) -> None:
    assert store.replace("head", b"1", None)
    assert not store.replace("head", b"2", None)
    first = store.get_tagged("head")
    assert first is not None
    assert first.data == b"1"
    assert store.replace("head", b"2", first.tag)
    assert not store.replace("head", b"3", first.tag)
    second = store.get_tagged("head")
    assert second is not None
    assert second.data == b"2"
    assert second.tag != first.tag
    store.delete("head")
    assert not store.replace("head", b"3", second.tag)
    assert store.get_tagged("head") is None


def test_of_many_that_replace_one_wins(store: ObjectStore) -> None:
    assert store.replace("head", b"0", None)
    for _ in range(3):
        before = store.get_tagged("head")
        assert before is not None
        tag = before.tag
        won = race(6, lambda number, tag=tag: store.replace("head", f"{tag}{number}".encode(), tag))
        assert len(won) == 1
        assert store.get("head") == f"{tag}{won[0]}".encode()


def test_many_counters_lose_no_count(store: ObjectStore) -> None:
    assert store.replace("count", b"0", None)

    def add_one(_: int) -> bool:
        while True:
            seen = store.get_tagged("count")
            assert seen is not None
            if store.replace("count", str(int(seen.data) + 1).encode(), seen.tag):
                return True

    race(6, add_one)
    assert store.get("count") == b"6"


def test_a_large_file_goes_in_parts_and_comes_back(store: ObjectStore, tmp_path: Path) -> None:
    data = os.urandom(1 << 20) * 17
    source, target = tmp_path / "source", tmp_path / "deep" / "target"
    source.write_bytes(data)
    store.put_file("part", source)
    assert store.get("part") == data
    assert store.get_file("part", target)
    assert target.read_bytes() == data
    assert [path.name for path in target.parent.iterdir()] == ["target"]
    store.put("large", data)
    assert store.get("large") == data


def test_a_missing_object_makes_no_file(store: ObjectStore, tmp_path: Path) -> None:
    assert not store.get_file("missing", tmp_path / "deep" / "target")
    assert not (tmp_path / "deep" / "target").exists()


def test_a_missing_file_is_named(store: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        store.put_file("part", tmp_path / "nowhere")


def test_a_reader_never_sees_half_a_put(store: ObjectStore) -> None:
    sizes: set[int | None] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            data = store.get("key")
            sizes.add(None if data is None else len(data))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(10):
        store.put("key", str(number).encode() * 200_000)
    done.set()
    reader.join()
    assert sizes <= {None, 200_000}


@remote_only
@pytest.mark.parametrize("status", [429, 500, 503])
def test_throttling_is_asked_again(place: Place, store: ObjectStore, status: int) -> None:
    front = _front(place)
    for ask in (
        lambda: store.put("key", b"1"),
        lambda: store.get("key"),
        lambda: store.keys(""),
        lambda: store.put_if_absent("other", b"1"),
        lambda: store.delete("key"),
    ):
        front.refuse(status, "SlowDown", times=2)
        assert ask() in (None, b"1", ["key"], True)
        assert not front.refusals


@remote_only
def test_a_conditional_write_whose_reply_was_lost_is_known_as_ours(
    place: Place, store: ObjectStore
) -> None:
    _front(place).lost_replies = 1
    assert store.put_if_absent("one", b"same")
    assert not store.put_if_absent("one", b"same")
    tagged = store.get_tagged("one")
    assert tagged is not None
    _front(place).lost_replies = 1
    assert store.replace("one", b"next", tagged.tag)
    assert store.get("one") == b"next"


@remote_only
def test_a_range_refused_for_load_is_read_again(place: Place, store: ObjectStore) -> None:
    store.put("a/data", b"0123456789")
    assert place.front is not None
    place.front.refuse(503, "SlowDown", 2)
    assert store.get_range("a/data", 2, 5) == b"234"


@remote_only
def test_a_write_refused_for_a_conflict_is_tried_again(place: Place, store: ObjectStore) -> None:
    _front(place).refuse(409, "ConditionalRequestConflict")
    assert store.put_if_absent("one", b"1")
    tagged = store.get_tagged("one")
    assert tagged is not None
    _front(place).refuse(409, "ConditionalRequestConflict")
    assert store.replace("one", b"2", tagged.tag)


@remote_only
@pytest.mark.parametrize(
    ("status", "code", "message", "remedy"),
    [
        (403, "AccessDenied", "not authorized", "allow reading, writing"),
        (400, "ExpiredToken", "The provided token has expired.", "renew the credentials"),
        (403, "InvalidClientTokenId", "The security token is invalid", "renew the credentials"),
        (400, "TokenRefreshRequired", "must be refreshed", "renew the credentials"),
        (403, "AnyOther", "a reason", "allow reading, writing"),
        (400, "AnyOther", "a reason", "check the address"),
        (301, "PermanentRedirect", "another endpoint", "AWS_REGION"),
        (400, "AuthorizationHeaderMalformed", "expecting 'eu-west-1'", "bucket is in eu-west-1"),
    ],
)
def test_a_refusal_names_the_bucket_and_the_remedy(
    place: Place, store: ObjectStore, status: int, code: str, message: str, remedy: str
) -> None:
    asks = (
        lambda: store.put("key", b"1"),
        lambda: store.get("key"),
        lambda: store.keys("jobs/"),
        lambda: store.delete("key"),
        lambda: store.put_if_absent("key", b"1"),
    )
    for ask in asks:
        _front(place).refusals.clear()
        _front(place).refuse(status, code, times=2, message=message)
        with pytest.raises(StoreError, match=BUCKET) as caught:
            ask()
        assert remedy in (caught.value.hint or "")
        assert "Debug source" not in str(caught.value)
    _front(place).refusals.clear()


@remote_only
def test_a_store_that_fails_is_not_taken_for_one_that_refuses(
    place: Place, store: ObjectStore
) -> None:
    _front(place).refuse(502, "BadGateway", times=100)
    with pytest.raises(StoreError, match=r"502|BadGateway") as caught:
        store.put("key", b"1")
    assert "later" in (caught.value.hint or "")
    _front(place).refusals.clear()


@remote_only
def test_a_missing_bucket_is_named(place: Place, tmp_path: Path) -> None:
    store = open_store(place.uri.replace(BUCKET, "no-such-bucket"))
    (tmp_path / "file").write_bytes(b"1")
    for ask in (
        lambda: store.put("key", b"1"),
        lambda: store.get("key"),
        lambda: store.keys(""),
        lambda: store.delete("key"),
        lambda: store.replace("key", b"1", None),
        lambda: store.put_file("key", tmp_path / "file"),
        lambda: store.get_file("key", tmp_path / "target"),
    ):
        with pytest.raises(StoreError, match=r"no-such-bucket.*NoSuchBucket") as caught:
            ask()
        assert "create the bucket" in (caught.value.hint or "")


def race(writers: int, write: object) -> list[int]:
    """The numbers of the writers that were told True, all having begun at once."""
    won: list[int] = []
    begin = threading.Barrier(writers)

    def run(number: int) -> None:
        begin.wait()
        if write(number):  # type: ignore[operator]
            won.append(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won


def _front(place: Place) -> Unreliable:
    assert place.front is not None
    return place.front
