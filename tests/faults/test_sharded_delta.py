"""Deltas of sharded checkpoints: what they write, what keeps their base, and how they are read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from costopt.checkpoint.commit import CommitResult
from costopt.checkpoint.history import CheckpointHistory, RetentionPolicy
from costopt.checkpoint.manifest import CheckpointName, Manifest
from costopt.checkpoint.repository import CheckpointRepository
from costopt.checkpoint.sharded.boxes import whole_box
from costopt.checkpoint.sharded.index import SHARD_CHUNK_BYTES, ShardIndex
from costopt.checkpoint.sharded.source import ShardSource
from costopt.cli.main import cli
from costopt.domain.errors import CheckpointError
from costopt.store.folder import FileStore
from tests.support.errors import has_code
from tests.support.shard_gang import COLUMNS, ROWS, WEIGHTS, ShardGang, whole

CHANGED_ROW = 3


def partly(step: int, changed_row: int = CHANGED_ROW) -> bytes:
    """A state in which a step changes one row alone, by default one of the first rank."""
    frozen, row = whole(0), whole(step)[:COLUMNS]
    begin = changed_row * COLUMNS
    return frozen[:begin] + row + frozen[begin + COLUMNS :]


def gang(folder: Path, **options: Any) -> ShardGang:
    def place() -> CheckpointRepository:
        return CheckpointRepository(FileStore(folder), str(folder))

    return ShardGang(place, state=partly, chunk_bytes=COLUMNS, **options)


def requests(ours: ShardGang, step: int, *, as_delta: bool = True) -> dict[str, Any]:
    """What each rank saves."""
    return {f"rank{r}": ours.request(r, step, as_delta=as_delta) for r in range(ours.size)}


def save(ours: ShardGang, step: int, *, as_delta: bool = False) -> Manifest:
    results = ours.save(step, **requests(ours, step, as_delta=as_delta))
    assert all(isinstance(result, CommitResult) for result in results), results
    (manifest,) = {
        r.manifest.name: r.manifest for r in results if isinstance(r, CommitResult)
    }.values()
    return manifest


def read(folder: Path, name: str) -> bytes:
    """All elements of a checkpoint, as a single process of another mesh reads them."""
    place = CheckpointRepository.open(str(folder))
    parsed = CheckpointName.parse(name)
    assert parsed is not None
    manifest = place.manifest(parsed)
    assert manifest.shards is not None
    source = ShardSource(place, parsed, manifest, place.indexes(parsed, manifest.shards))
    state = bytearray(ROWS * COLUMNS)
    pieces = source.pieces({"weights": whole_box(WEIGHTS.shape)})
    begins = [0]
    for index in source._indexes:
        begins.append(begins[-1] + sum(part.size_bytes for part in index.tensors))
    for window, _ in source.windows([piece.span for piece in pieces], 1 << 20):
        memory = memoryview(bytearray(window.size_bytes))
        source.read(window, memory, 0, 1)
        for run, offset in zip(window.runs, window.offsets, strict=True):
            length = run.end - run.begin
            at = begins[run.source] + run.begin
            state[at : at + length] = memory[offset : offset + length]
    return bytes(state)


def test_a_delta_writes_only_what_changed_since_the_whole_one(tmp_path: Path) -> None:
    ours = gang(tmp_path)
    base = save(ours, 1)
    first, second = (save(ours, step, as_delta=True) for step in (2, 3))
    for delta in (first, second):
        assert delta.delta is not None
        assert delta.delta.base == base.name
        assert delta.size_bytes > ROWS * COLUMNS
    stored = [f.name for f in (tmp_path / second.name).iterdir() if f.name.endswith(".bin")]
    assert [name[:6] for name in stored] == ["r00000"]
    (own,) = (tmp_path / second.name).glob("*.bin")
    assert own.stat().st_size == COLUMNS
    written = sum(f.stat().st_size for f in (tmp_path / second.name).glob("r*"))
    assert second.own_bytes == written
    history = CheckpointHistory.open(str(tmp_path))
    assert [history.verify(each.name) for each in history.list()] == [None] * 3
    assert whole(0) != partly(2) != partly(3)


def test_the_base_stays_for_as_long_as_a_delta_needs_it(tmp_path: Path) -> None:
    ours = gang(tmp_path, keep=1)
    base = save(ours, 1)
    delta = save(ours, 2, as_delta=True)
    history = CheckpointHistory.open(str(tmp_path))
    assert history.prune(RetentionPolicy(1), apply=True) == ()
    with pytest.raises(CheckpointError, check=has_code("needs_base")):
        history.untag(f"base-of:{delta.name}")
    assert history.verify(delta.name) is None
    for step in (3, 4):
        save(ours, step)
    assert [entry.manifest.step for entry in history.list() if entry.manifest] == [4]
    assert not (tmp_path / base.name).exists()
    assert history.place.tags() == {}


def test_rollback_to_a_delta_and_branch_make_it_whole(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ours = gang(folder, keep=9)
    save(ours, 1)
    delta = save(ours, 2, as_delta=True)
    save(ours, 3)
    history = CheckpointHistory.open(str(folder))
    history.rollback(delta.name)
    assert history.list()[0].name != delta.name
    newest = [entry.name for entry in history.list() if entry.is_newest]
    assert newest == [delta.name]
    history.branch(delta.name, str(tmp_path / "branch"))
    branched = CheckpointHistory.open(str(tmp_path / "branch"))
    (entry,) = branched.list()
    assert entry.manifest is not None
    assert entry.manifest.delta is None
    assert branched.verify(entry.name) is None
    stored = sum(f.stat().st_size for f in (tmp_path / "branch" / entry.name).glob("r*"))
    assert entry.manifest.own_bytes == entry.manifest.size_bytes == stored


def test_damage_of_the_base_is_said_of_the_delta(tmp_path: Path) -> None:
    ours = gang(tmp_path)
    base = save(ours, 1)
    delta = save(ours, 2, as_delta=True)
    (victim,) = (tmp_path / base.name).glob("r00002-*-tensors-00000.bin")
    data = bytearray(victim.read_bytes())
    data[7] ^= 1
    victim.write_bytes(data)
    history = CheckpointHistory.open(str(tmp_path))
    assert base.name in (history.verify(delta.name) or "")
    with pytest.raises(CheckpointError, check=has_code("damaged")):
        history.rollback(delta.name)


def test_a_writer_that_was_restarted_writes_its_part_in_full(tmp_path: Path) -> None:
    ours = gang(tmp_path)
    base = save(ours, 1)
    ours.committers[1] = ours.committer(1)
    mixed = save(ours, 2, as_delta=True)
    assert mixed.delta is not None
    assert mixed.delta.base == base.name
    names = {f.name[:6] for f in (tmp_path / mixed.name).glob("*.bin")}
    assert names == {"r00000", "r00001"}
    # What was written so is no base: the others would not have it.
    again = save(ours, 3, as_delta=True)
    assert again.delta == mixed.delta
    assert CheckpointHistory.open(str(tmp_path)).verify(again.name) is None


def test_another_gang_writes_everything_once(tmp_path: Path) -> None:
    save(gang(tmp_path), 1)
    ours = gang(tmp_path)
    assert save(ours, 2, as_delta=True).delta is None
    assert save(ours, 3, as_delta=True).delta is not None


def test_ranks_with_several_bases_commit_nothing(tmp_path: Path) -> None:
    ours = gang(tmp_path)
    save(ours, 1)
    lost = ours.committers[2]._whole
    save(ours, 2)
    ours.committers[2]._whole = lost
    results = ours.save(3, **requests(ours, 3))
    assert all("several bases" in error.message for error in results)  # type: ignore[union-attr]
    # The next save of all is whole, and a base again.
    assert all(r.manifest.delta is None for r in ours.save(4, **requests(ours, 4)))  # type: ignore[union-attr]


def test_a_missing_file_is_not_committed(tmp_path: Path) -> None:
    ours = gang(tmp_path)
    name = CheckpointName(1, 1, ours.attempt)
    for rank in (1, 2, 3):
        ours.committers[rank]._take(name)
        ours.committers[rank]._write_shard(name, ours.request(rank, 1))
    (victim,) = tmp_path.glob("step-*/r00002-*-tensors-00000.bin")
    victim.unlink()
    (result,) = ours.save(1, ranks=[0])
    assert isinstance(result, CheckpointError)
    assert "rank 2" in result.message
    assert CheckpointHistory.open(str(tmp_path)).list()[0].in_line is False


def test_a_half_written_file_is_not_committed(tmp_path: Path) -> None:
    """A writer that dies leaves files, but no index: the gang waits for it in vain."""
    ours = gang(tmp_path, timeout_s=0.5)
    name = CheckpointName(1, 1, ours.attempt)
    torn = tmp_path / str(name) / f"{ours.committers[3].gang.prefix(3)}tensors-00000.bin"
    torn.parent.mkdir(parents=True)
    torn.write_bytes(b"torn")
    results = ours.save(1, ranks=[0, 1, 2])
    assert all("of rank 3" in error.message for error in results)  # type: ignore[union-attr]
    late = ours.committers[3]
    with pytest.raises(CheckpointError):
        late.commit(ours.request(3, 1))
    assert CheckpointRepository.open(str(tmp_path)).head().line == ()  # type: ignore[union-attr]


@pytest.mark.parametrize("changed_row", [CHANGED_ROW, ROWS - 1])
def test_another_mesh_reads_a_delta_and_its_base_as_one(tmp_path: Path, changed_row: int) -> None:
    def place() -> CheckpointRepository:
        return CheckpointRepository(FileStore(tmp_path), str(tmp_path))

    def state(step: int) -> bytes:
        return partly(step, changed_row)

    ours = ShardGang(place, size=1, state=state)
    assert ROWS * COLUMNS > SHARD_CHUNK_BYTES
    save(ours, 1)
    delta = save(ours, 2, as_delta=True)
    assert delta.delta is not None
    assert read(tmp_path, delta.name) == state(2)
    (victim,) = tmp_path.glob("step-000000001*/*.bin")
    data = bytearray(victim.read_bytes())
    data[-1 if changed_row == CHANGED_ROW else 0] ^= 1
    victim.write_bytes(data)
    with pytest.raises(ValueError, match=r"step-000000001\S+ is damaged"):
        read(tmp_path, delta.name)


def test_an_index_keeps_the_chunks_that_its_base_holds(tmp_path: Path) -> None:
    ours = gang(tmp_path)
    save(ours, 1)
    delta = save(ours, 2, as_delta=True)
    place = CheckpointRepository.open(str(tmp_path))
    name = CheckpointName.parse(delta.name)
    assert name is not None
    assert delta.shards is not None
    index = place.indexes(name, delta.shards)[0]
    assert ShardIndex.decode(index.encode()) == index
    assert index.delta is not None
    chunks = dict(index.delta.shared)[index.tensors[0].name]
    assert CHANGED_ROW not in chunks
    assert len(chunks) == ROWS // ours.size - 1
    assert ShardIndex.decode(replace(index, delta=None).encode()).delta is None


def test_every_command_takes_sharded_checkpoints(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ours = gang(folder, keep=9)
    save(ours, 1)
    delta = save(ours, 2, as_delta=True)
    save(ours, 3)

    def asked(*arguments: str) -> Any:
        return CliRunner().invoke(cli, ["checkpoints", *arguments])

    rows = json.loads(asked("list", str(folder), "-o", "json").stdout)["rows"]
    assert [row["mesh"] for row in rows] == ["dp 4"] * 3
    assert [row["base"] for row in rows] == ["", delta.delta and delta.delta.base, ""]
    assert asked("verify", str(folder)).exit_code == 0
    assert asked("tag", str(folder), delta.name, "good").exit_code == 0
    assert asked("rollback", str(folder), "good").exit_code == 0
    assert asked("branch", str(folder), "good", str(tmp_path / "branch")).exit_code == 0
    assert asked("verify", str(tmp_path / "branch")).exit_code == 0
    pruned = asked("prune", str(folder), "--last", "1", "--apply")
    assert pruned.exit_code == 0
    left = json.loads(asked("list", str(folder), "-o", "json").stdout)["rows"]
    # The base has a tag, the third is tagged as what was the newest before the rollback.
    assert {row["step"] for row in left} == {1, 2, 3}
    (folder / delta.name / "manifest.json").unlink()
    assert asked("verify", str(folder), delta.name).exit_code == 1
