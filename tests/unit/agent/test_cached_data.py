"""What a node's cache brings to its disk, and what it refuses."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from costopt.agent import cached_data
from costopt.agent.cached_data import CacheFetch
from costopt.agent.data import INDEX
from costopt.protocol.messages import CacheReport, CacheSource
from costopt.store.folder import FileStore
from tests.support.live_run import wait_until

WEIGHTS = {"a/one.safetensors": b"1" * 1000, "two.safetensors": b"2" * 500}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_data, "RETRY_S", 0.01)


@pytest.fixture
def source(tmp_path: Path) -> CacheSource:
    """Weights with their index, and its digest."""
    store = FileStore(tmp_path / "bucket")
    for key, data in WEIGHTS.items():
        store.put(key, data)
    rows = [
        {"key": key, "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for key, data in WEIGHTS.items()
    ]
    index = json.dumps({"objects": rows}).encode()
    store.put(INDEX, index)
    return (str(tmp_path / "bucket"), "weights", hashlib.sha256(index).hexdigest(), False)


def fetched(folder: Path, *sources: CacheSource) -> CacheFetch:
    fetch = CacheFetch(sources, folder)
    wait_until(lambda: fetch.report is not None or fetch.failure is not None, "an end")
    return fetch


def test_everything_is_there_under_its_name_and_a_second_start_fetches_nothing(
    tmp_path: Path, source: CacheSource
) -> None:
    first = fetched(tmp_path / "disk", source)
    there = first.directory / "weights"
    assert {k: (there / k).read_bytes() for k in WEIGHTS} == WEIGHTS
    inode = (there / "two.safetensors").stat().st_ino
    second = fetched(tmp_path / "disk", source)
    assert isinstance(first.report, CacheReport)
    assert isinstance(second.report, CacheReport)
    assert (first.report.fetched_bytes, first.report.held_bytes) == (1500, 0)
    assert (second.report.fetched_bytes, second.report.held_bytes) == (0, 1500)
    assert (there / "two.safetensors").stat().st_ino == inode


def test_what_was_cut_short_or_has_another_size_is_fetched_again(
    tmp_path: Path, source: CacheSource
) -> None:
    there = fetched(tmp_path / "disk", source).directory / "weights"
    (there / "two.safetensors").write_bytes(b"2" * 499)
    report = fetched(tmp_path / "disk", source).report
    assert report is not None
    assert (report.fetched_bytes, report.held_bytes) == (500, 1000)
    assert (there / "two.safetensors").read_bytes() == WEIGHTS["two.safetensors"]


def test_a_path_of_the_node_leads_to_the_cache(tmp_path: Path, source: CacheSource) -> None:
    place = tmp_path / "data" / "weights"
    fetched(tmp_path / "disk", (source[0], str(place), source[2], False))
    assert (place / "two.safetensors").read_bytes() == WEIGHTS["two.safetensors"]


def test_an_image_that_has_the_data_fetches_nothing(tmp_path: Path, source: CacheSource) -> None:
    place = tmp_path / "data" / "weights"
    in_image = (source[0], str(place), "", True)
    lacking = fetched(tmp_path / "disk", in_image).report
    assert lacking is not None
    assert lacking.fetched_bytes == 1500
    place.unlink()
    place.mkdir()
    has = fetched(tmp_path / "other", in_image).report
    assert has is not None
    assert has.fetched_bytes == 0


def test_an_object_that_is_not_the_one_of_the_index_is_never_used(
    tmp_path: Path, source: CacheSource
) -> None:
    FileStore(Path(source[0])).put("two.safetensors", b"3" * 500)
    fetch = fetched(tmp_path / "disk", source)
    assert fetch.report is None
    assert "two.safetensors does not match" in (fetch.failure or "")
    assert not (fetch.directory / "weights").exists()


@pytest.mark.parametrize("change", ["digest", "empty", "in_the_way"])
def test_a_cache_that_is_unavailable_says_why(
    tmp_path: Path, source: CacheSource, change: str
) -> None:
    uri, to, digest, _ = source
    (tmp_path / "mine").mkdir()
    wrong = {
        "digest": (uri, to, "0" * 64, False),
        "empty": (str(tmp_path / "nothing"), to, "", False),
        "in_the_way": (uri, str(tmp_path / "mine"), digest, False),
    }[change]
    said = {"digest": "SHA-256", "empty": "holds no objects", "in_the_way": "exists on the node"}
    assert said[change] in (fetched(tmp_path / "disk", wrong).failure or "")
