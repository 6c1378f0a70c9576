"""Deltas on stores that refuse, and writers that die in the middle of one."""

from __future__ import annotations

import itertools
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from costopt.checkpoint.commit import Committer, SaveRequest, SupersededError
from costopt.checkpoint.history import CheckpointHistory, RetentionPolicy
from costopt.checkpoint.repository import MANIFEST, CheckpointRepository
from costopt.domain.errors import CheckpointError
from tests.support.errors import has_code
from tests.support.failing_store import Failing

FROZEN = bytes(range(200)) * 10


def content(step: int) -> dict[str, bytes]:
    return {"a.bin": FROZEN + bytes([step]) * 900, "b.bin": FROZEN, "c.bin": bytes([step]) * 9}


def saving(step: int, *, as_delta: bool) -> SaveRequest:
    files = {name: memoryview(data) for name, data in content(step).items()}
    return SaveRequest(step, 1, 0.0, files, as_delta=as_delta)


def committer(place: CheckpointRepository, generation: int, **options: object) -> Committer:
    return Committer(place, generation, RetentionPolicy(2), chunk_bytes=500, **options)  # type: ignore[arg-type]


def place_at(folder: Path) -> CheckpointRepository:
    return CheckpointRepository.open(str(folder))


def newest_step(folder: Path) -> int | None:
    """Of the newest, when all that HEAD names is what was saved."""
    place = place_at(folder)
    names, complaint = place.candidates()
    assert complaint is None
    for name in names:
        manifest = place.manifest(name)
        found = {part.name: place.read(name, part, manifest.delta) for part in manifest.parts}
        assert found == content(name.step)
    return names[0].step if names else None


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("every", [19, 31])
def test_a_store_that_fails_now_and_then_leaves_whole_deltas(
    tmp_path: Path, every: int, when: str
) -> None:
    asked = 0

    def fails(request: str, key: str) -> str | None:
        nonlocal asked
        asked += 1
        return when if asked % every == 0 else None

    by = committer(CheckpointRepository(Failing(tmp_path, fails), str(tmp_path)), 1)
    newest, deltas, failed = None, 0, 0
    for step in range(1, 31):
        try:
            manifest = by.commit(saving(step, as_delta=step % 3 != 1)).manifest
        except CheckpointError:
            failed += 1
            assert newest_step(tmp_path) in (newest, step), "a failed save destroyed another"
        else:
            deltas += manifest.delta is not None
            assert newest_step(tmp_path) == step, "a save that was reported is not there"
        newest = newest_step(tmp_path)
    assert failed > 0
    assert deltas > 0
    last = committer(place_at(tmp_path), 2)
    for step in range(31, 35):
        last.commit(saving(step, as_delta=False))
    assert newest_step(tmp_path) == 34
    assert len(list(tmp_path.glob("step-*"))) == 2, "what failed was not cleaned away"
    assert last.place.tags() == {}


def test_wherever_a_writer_dies_in_a_delta_what_is_kept_is_whole(tmp_path: Path) -> None:
    steps_found: set[int | None] = set()
    parent = None
    for step in (1, 2):
        by = committer(place_at(tmp_path / "before"), step, parent=parent)
        parent = str(by.commit(saving(step, as_delta=step == 2)).name)
    for requests in itertools.count():
        folder = shutil.copytree(tmp_path / "before", tmp_path / str(requests))
        asked = itertools.count()

        def dead(request: str, key: str, asked: itertools.count[int] = asked) -> str | None:
            return "before" if next(asked) >= requests else None  # noqa: B023

        place = CheckpointRepository(Failing(folder, dead), str(folder))
        with suppress(CheckpointError):
            committer(place, 3, parent=parent).commit(saving(3, as_delta=True))
        if next(asked) <= requests:
            break
        steps_found.add(newest_step(folder))
        after = committer(place_at(folder), 4, parent=str(place_at(folder).candidates()[0][0]))
        for step in (4, 5, 6):
            after.commit(saving(step, as_delta=False))
            newest_step(folder)
        assert len(list(folder.glob("step-*"))) == 2
        assert after.place.tags() == {}
    assert requests > 10
    assert steps_found == {2, 3}


@pytest.mark.parametrize("moment", ["writer", "a.bin", "base-of", MANIFEST, "HEAD"])
def test_a_stopped_writer_of_a_delta_that_wakes_commits_nothing(
    tmp_path: Path, moment: str
) -> None:
    stopped_at: list[str] = []

    def stop(request: str, key: str) -> str | None:
        writes = request in ("put", "put_if_absent", "replace")
        if writes and moment in key and old.parent is not None and not stopped_at:
            stopped_at.append(key)
            later = committer(place_at(tmp_path), 2, parent=old.parent)
            later.commit(saving(7, as_delta=True))
        return None

    old = committer(CheckpointRepository(Failing(tmp_path, stop), str(tmp_path)), 1)
    base = str(old.commit(saving(5, as_delta=False)).name)
    with pytest.raises(SupersededError, check=has_code("superseded")):
        old.commit(saving(9, as_delta=True))
    assert stopped_at
    assert newest_step(tmp_path) == 7
    assert not list(tmp_path.glob("step-000000009*"))
    assert list(place_at(tmp_path).tags().values()) == [base]
    assert all(
        CheckpointHistory(place_at(tmp_path)).verify(entry.name) is None
        for entry in CheckpointHistory(place_at(tmp_path)).list()
    )


def test_who_prunes_beside_a_delta_that_is_written_leaves_its_base(tmp_path: Path) -> None:
    """At every request of the writer somebody prunes as much as is allowed."""
    pruned: list[str] = []

    def prune(request: str, key: str) -> str | None:
        pruned.extend(CheckpointHistory(place_at(tmp_path)).prune(RetentionPolicy(1), apply=True))
        return None

    base = committer(place_at(tmp_path), 1).commit(saving(1, as_delta=False)).name
    place = CheckpointRepository(Failing(tmp_path, prune), str(tmp_path))
    by = committer(place, 2, parent=str(base))
    for step in range(2, 9):
        by.commit(saving(step, as_delta=step % 3 != 1))
        assert newest_step(tmp_path) == step
    assert pruned


def test_who_saves_a_delta_beside_a_prune_finds_its_base_again(tmp_path: Path) -> None:
    """At each request of the prune, in turn."""
    for moment in itertools.count():
        folder = tmp_path / str(moment)
        by = committer(place_at(folder), 1)
        for step in (1, 2):
            by.commit(saving(step, as_delta=False))
        asked = itertools.count()

        def save(
            request: str, key: str, asked: itertools.count[int] = asked, by: Committer = by
        ) -> str | None:
            if next(asked) == moment:  # noqa: B023
                by.commit(saving(3, as_delta=True))
                by.commit(saving(4, as_delta=False))
            return None

        place = CheckpointRepository(Failing(folder, save), str(folder))
        CheckpointHistory(place).prune(RetentionPolicy(1), apply=True)
        if next(asked) <= moment:
            break
        assert newest_step(folder) == 4
    assert moment > 5
