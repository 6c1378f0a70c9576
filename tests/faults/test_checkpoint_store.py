"""Stores that refuse, writers that race, and writers that wake when another has taken over."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from costopt.checkpoint.commit import Committer, SaveRequest, SupersededError
from costopt.checkpoint.history import CheckpointHistory, RetentionPolicy
from costopt.checkpoint.repository import MANIFEST, CheckpointRepository
from costopt.domain.errors import CheckpointError
from tests.support.errors import has_code
from tests.support.failing_store import Failing


def saving(step: int) -> SaveRequest:
    content = bytes([step % 251]) * 3000
    return SaveRequest(
        step, 1, 0.0, {"a.bin": memoryview(content), "b.bin": memoryview(content[:9])}
    )


def place_at(folder: Path) -> CheckpointRepository:
    return CheckpointRepository.open(str(folder))


def newest_step(folder: Path) -> int | None:
    """Of the newest, every byte of which must be what was saved."""
    place = place_at(folder)
    names, complaint = place.candidates()
    assert complaint is None
    if not names:
        return None
    manifest = place.manifest(names[0])
    for part in manifest.parts:
        assert set(place.read(names[0], part, manifest.delta)) == {manifest.step % 251}
    return manifest.step


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("every", [3, 17, 23, 31])
def test_a_store_that_fails_now_and_then_gives_no_false_success(
    tmp_path: Path, every: int, when: str
) -> None:
    asked = 0

    def fails(request: str, key: str) -> str | None:
        nonlocal asked
        asked += 1
        return when if asked % every == 0 else None

    place = CheckpointRepository(Failing(tmp_path, fails), str(tmp_path))
    committer = Committer(place, 1)
    saved, failed = 0, 0
    newest = None
    reported: list[str] = []
    for step in range(1, 21):
        try:
            committer.commit(saving(step))
        except CheckpointError as error:
            failed += 1
            reported.append(error.message)
            assert newest_step(tmp_path) in (newest, step), "a failed save destroyed another"
        else:
            saved += 1
            assert newest_step(tmp_path) == step, "a save that was reported is not there"
        newest = newest_step(tmp_path)
    assert failed > 0
    assert all("Input/output" in said or "reply was lost" in said for said in reported)
    if every > 17:
        assert saved > 0
    Committer(place_at(tmp_path), 2).commit(saving(99))
    assert newest_step(tmp_path) == 99
    assert len(list(tmp_path.glob("step-*"))) <= 3, "what failed was not cleaned away"


def test_a_lost_reply_to_the_last_request_is_a_success(tmp_path: Path) -> None:
    place = CheckpointRepository(
        Failing(tmp_path, lambda request, _: "after" if request == "replace" else None),
        str(tmp_path),
    )
    Committer(place, 1).commit(saving(1))
    assert newest_step(tmp_path) == 1


def test_of_two_writers_that_race_the_later_claimant_goes_on_alone(tmp_path: Path) -> None:
    committers = [Committer(place_at(tmp_path), 1, RetentionPolicy(2)) for _ in range(2)]
    saved: list[list[int]] = [[], []]
    superseded: list[int] = []

    def save(number: int) -> None:
        for step in range(1, 30):
            try:
                committers[number].commit(saving(step))
            except SupersededError:
                superseded.append(number)
                return
            saved[number].append(step)

    threads = [threading.Thread(target=save, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(superseded) == 1
    assert saved[1 - superseded[0]][-1] == 29
    assert newest_step(tmp_path) == 29
    entries = CheckpointHistory(place_at(tmp_path)).list()
    assert all(CheckpointHistory(place_at(tmp_path)).verify(e.name) is None for e in entries)


@pytest.mark.parametrize("moment", ["writer", "a.bin", MANIFEST, "HEAD"])
@pytest.mark.parametrize("later_generation", [1, 2])
def test_a_stopped_writer_that_wakes_commits_nothing(
    tmp_path: Path, moment: str, later_generation: int
) -> None:
    """The old one stops just before a request; the new one claims and saves; the old one wakes."""
    stopped_at: list[str] = []

    def stop(request: str, key: str) -> str | None:
        at_moment = key.endswith(moment) and request in ("put", "put_if_absent", "replace")
        if at_moment and old.claimed and old.parent is not None and not stopped_at:
            stopped_at.append(key)
            Committer(place_at(tmp_path), later_generation, parent=old.parent).commit(saving(7))
        return None

    old = Committer(CheckpointRepository(Failing(tmp_path, stop), str(tmp_path)), 1)
    old.commit(saving(5))
    with pytest.raises(SupersededError, check=has_code("superseded")) as caught:
        old.commit(saving(9))
    assert caught.value.hint is not None
    assert stopped_at
    assert newest_step(tmp_path) == 7
    with pytest.raises(SupersededError):
        old.commit(saving(10))
    assert newest_step(tmp_path) == 7
    assert not list(tmp_path.glob("step-000000009*"))


def test_a_writer_that_stops_while_it_cleans_up_takes_nothing_of_the_next(tmp_path: Path) -> None:
    taken: list[bool] = []

    def stop(request: str, key: str) -> str | None:
        if request == "delete" and not taken:
            taken.append(True)
            later = Committer(place_at(tmp_path), 1, RetentionPolicy(1), parent=old.parent)
            later.commit(saving(50))
        return None

    store = Failing(tmp_path, stop)
    old = Committer(CheckpointRepository(store, str(tmp_path)), 1, RetentionPolicy(1))
    old.commit(saving(1))
    old.commit(saving(2))
    assert taken
    assert newest_step(tmp_path) == 50


def test_a_writer_that_cleans_up_late_spares_what_the_next_has_begun(tmp_path: Path) -> None:
    """The next one claims and begins a save between the old one's commit and its cleaning up."""
    old = Committer(place_at(tmp_path), 1)
    old.commit(saving(1))
    committed = old._move_head(None)
    later = Committer(place_at(tmp_path), 1, parent=old.parent)
    later.claim()
    begun = tmp_path / str(later._take_name(50))
    old._prune(committed)
    assert begun.is_dir()


def test_a_writer_of_an_older_generation_that_comes_late_is_refused(tmp_path: Path) -> None:
    Committer(place_at(tmp_path), 3).commit(saving(5))
    late = Committer(place_at(tmp_path), 2)
    with pytest.raises(SupersededError, match=r"generation 3\b", check=has_code("superseded")):
        late.claim()
    with pytest.raises(SupersededError, match=r"generation 3\b", check=has_code("superseded")):
        late.commit(saving(9))
    (tmp_path / "HEAD").unlink()
    with pytest.raises(SupersededError, match=r"generation 3\b", check=has_code("superseded")):
        late.commit(saving(9))


def test_random_claims_saves_and_deaths_leave_one_line(tmp_path: Path) -> None:
    draw = random.Random(8)
    dead_after = 10**9
    asked = 0

    def fails(request: str, key: str) -> str | None:
        nonlocal asked
        asked += 1
        return "before" if asked > dead_after else None

    newest = None
    for generation in range(1, 30):
        place = CheckpointRepository(Failing(tmp_path, fails), str(tmp_path))
        names, _ = place_at(tmp_path).candidates()
        parent = str(names[0]) if names else None
        committer = Committer(place, generation, RetentionPolicy(2), parent=parent)
        asked, dead_after = 0, draw.randrange(1, 60)
        try:
            for step in range(generation * 10, generation * 10 + 5):
                committer.commit(saving(step))
                newest = step
        except CheckpointError:
            found = newest_step(tmp_path)
            assert found is None or newest is None or found >= newest
            newest = found
    assert len(list(tmp_path.glob("step-*"))) <= 4
