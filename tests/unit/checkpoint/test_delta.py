"""Deltas: what they write, what they need, what keeps it, and what is said of damage."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from costopt.checkpoint.commit import Committer, SaveRequest
from costopt.checkpoint.history import CheckpointHistory, RetentionPolicy
from costopt.checkpoint.manifest import CheckpointName, Manifest
from costopt.checkpoint.repository import CheckpointRepository
from costopt.domain.errors import CheckpointError
from costopt.train.checkpointer import Checkpointer
from tests.support.errors import has_code

CHUNK = 100
FROZEN = b"f" * 250


def numbers(problem: str | None) -> list[str]:
    """The file and the numbers of bytes that a problem names."""
    return re.findall(r"\ba\.bin|\b\d+\b", problem or "")


def committer(folder: Path, last: int = 3, generation: int = 1, **options: object) -> Committer:
    place = CheckpointRepository.open(str(folder))
    rule = RetentionPolicy(last)
    return Committer(place, generation, rule, chunk_bytes=CHUNK, **options)  # type: ignore[arg-type]


def content(step: int) -> dict[str, bytes]:
    """Four chunks, of which the last two change; a file that stays and one that does not."""
    return {"a.bin": FROZEN + bytes([step]) * 90, "b.bin": FROZEN, "c.bin": bytes([step])}


def commit(by: Committer, step: int, *, as_delta: bool = False) -> str:
    files = {name: memoryview(data) for name, data in content(step).items()}
    return str(by.commit(SaveRequest(step, 1, 0.0, files, as_delta=as_delta)).name)


def manifest(folder: Path, name: str) -> Manifest:
    return Manifest.decode((folder / name / "manifest.json").read_bytes())


def read(folder: Path, name: str) -> dict[str, bytes]:
    place, found = CheckpointRepository.open(str(folder)), manifest(folder, name)
    parsed = CheckpointName.parse(name)
    assert parsed is not None
    return {part.name: place.read(parsed, part, found.delta) for part in found.parts}


def line(folder: Path) -> list[str]:
    return [str(name) for name in CheckpointRepository.open(str(folder)).candidates()[0]]


def files(folder: Path, name: str) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in (folder / name).glob("*.bin")}


def test_only_what_changed_is_written_and_all_of_it_comes_back(tmp_path: Path) -> None:
    by = committer(tmp_path)
    base, delta = commit(by, 1), commit(by, 2, as_delta=True)
    assert files(tmp_path, delta) == {"a.bin": 140, "c.bin": 1}
    found = manifest(tmp_path, delta)
    assert found.delta is not None
    assert (found.delta.base, found.size_bytes, found.own_bytes) == (base, 591, 141)
    assert read(tmp_path, delta) == content(2)
    assert CheckpointHistory.open(str(tmp_path)).verify(delta) is None


def test_versions_that_know_of_no_deltas_read_the_others_and_refuse_these(tmp_path: Path) -> None:
    by = committer(tmp_path)
    names = commit(by, 1), commit(by, 2, as_delta=True)
    base, delta = (
        json.loads((tmp_path / name / "manifest.json").read_text().partition("\n")[2])
        for name in names
    )
    assert (base["schema"], delta["schema"]) == (2, 3)
    assert "delta" not in base


def test_where_nothing_stayed_the_same_it_is_whole(tmp_path: Path) -> None:
    by = committer(tmp_path)
    for step in (1, 2):
        data = memoryview(bytes([step]) * 250)
        by.commit(SaveRequest(step, 1, 0.0, {"a.bin": data}, as_delta=True))
    assert manifest(tmp_path, line(tmp_path)[0]).delta is None
    assert by.place.tags() == {}


def test_there_is_one_level_and_the_next_save_is_whole_again(tmp_path: Path) -> None:
    by = committer(tmp_path)
    base = commit(by, 1)
    first, second = commit(by, 2, as_delta=True), commit(by, 2, as_delta=True)
    for name in (first, second):
        found = manifest(tmp_path, name).delta
        assert found is not None
        assert found.base == base
        assert read(tmp_path, name) == content(2)
    assert manifest(tmp_path, commit(by, 4)).delta is None


def test_what_training_does_not_stand_on_is_not_a_base(tmp_path: Path) -> None:
    by = committer(tmp_path)
    first, second = commit(by, 1), commit(by, 2)
    back = committer(tmp_path, generation=2, parent=first)
    assert manifest(tmp_path, commit(back, 3, as_delta=True)).delta is None
    assert second not in line(tmp_path)


def test_damage_is_said_to_be_where_it_is(tmp_path: Path) -> None:
    by = committer(tmp_path)
    base, delta = commit(by, 1), commit(by, 2, as_delta=True)
    history = CheckpointHistory.open(str(tmp_path))
    at_base, at_delta = tmp_path / base / "a.bin", tmp_path / delta / "a.bin"
    whole = at_base.read_bytes()
    at_base.write_bytes(whole[:-1] + b"?")
    assert numbers(history.verify(base)) == ["a.bin", "300", "340"]
    assert history.verify(delta) is None, "it does not need that chunk"
    at_base.write_bytes(b"?" + whole[1:])
    assert base in str(history.verify(delta))
    assert numbers(history.verify(delta))[-3:] == ["a.bin", "0", "100"]
    at_base.unlink()
    assert history.verify(delta) == f"its base {base}: a.bin is missing"
    at_base.write_bytes(whole)
    changed = at_delta.read_bytes()
    at_delta.write_bytes(b"?" + changed[1:])
    assert numbers(history.verify(delta)) == ["a.bin", "200", "300"]
    at_delta.write_bytes(changed + b"?")
    assert numbers(history.verify(delta)) == ["a.bin", "341", "340"]
    at_delta.unlink()
    assert history.verify(delta) == "a.bin is missing"


def test_a_delta_is_none_of_the_last_and_its_base_stays_as_long_as_it(tmp_path: Path) -> None:
    by = committer(tmp_path, last=2)
    names = [commit(by, step, as_delta=step == 3) for step in (1, 2, 3)]
    assert line(tmp_path) == names[::-1]
    names.append(commit(by, 4))
    assert line(tmp_path) == names[:0:-1]
    names.append(commit(by, 5))
    assert line(tmp_path) == [names[4], names[3], names[1]], "the base was needed until then"
    assert not (tmp_path / names[2]).exists()
    assert by.place.tags() == {}
    commit(by, 6)
    assert not (tmp_path / names[1]).exists()


def test_a_tagged_delta_keeps_its_base(tmp_path: Path) -> None:
    by = committer(tmp_path, last=1)
    base, delta = commit(by, 1), commit(by, 2, as_delta=True)
    history = CheckpointHistory.open(str(tmp_path))
    history.tag(delta, "good")
    for step in (3, 4):
        commit(by, step)
    assert history.prune(RetentionPolicy(1), apply=True) == ()
    assert {base, delta} < set(line(tmp_path))
    with pytest.raises(CheckpointError, check=has_code("needs_base")):
        history.untag(f"base-of:{delta}")
    with pytest.raises(CheckpointError, check=has_code("not_a_tag")):
        history.tag(base, f"base-of:{delta}")
    history.untag("good")
    assert history.prune(RetentionPolicy(1), apply=True) == (delta,)
    assert history.prune(RetentionPolicy(1), apply=True) == (base,)


def test_a_branch_of_a_delta_is_whole(tmp_path: Path) -> None:
    by = committer(tmp_path / "a")
    commit(by, 1)
    delta = commit(by, 2, as_delta=True)
    CheckpointHistory.open(str(tmp_path / "a")).branch(delta, str(tmp_path / "b"))
    assert manifest(tmp_path / "b", delta).delta is None
    assert read(tmp_path / "b", delta) == content(2)


@pytest.mark.process
def test_a_restore_walks_back_past_a_delta_whose_base_is_damaged(tmp_path: Path) -> None:
    frozen = torch.arange(300_000.0)

    def state(step: int) -> dict[str, object]:
        return {"frozen": frozen, "weights": torch.full((100,), float(step))}

    checkpointer = Checkpointer(tmp_path)
    older, base = (checkpointer.save(step, state(step)) for step in (1, 2))
    delta = checkpointer.save_for_notice(3, state(3))
    checkpointer.close()
    name = line(tmp_path)[0]
    own = manifest(tmp_path, name).own_bytes
    assert own < 200_000
    assert getattr(delta, "size_bytes", None) == own
    restored = Checkpointer(tmp_path).restore()
    assert restored is not None
    assert torch.equal(restored.state["frozen"], frozen)
    assert torch.equal(restored.state["weights"], torch.full((100,), 3.0))
    damaged = tmp_path / base.name / "tensors-00000.bin"
    damaged.write_bytes(b"?" + damaged.read_bytes()[1:])
    again = Checkpointer(tmp_path)
    restored = again.restore()
    assert restored is not None
    assert restored.name == older.name
    first = again.refused[0]
    assert first.name == name
    assert first.message.startswith(f"its base {base.name}: tensors-00000.bin is damaged")
