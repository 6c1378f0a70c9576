"""Sharded saves: any rank may fail, die, wake or lie; only whole ones of one step are committed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from costopt.checkpoint.commit import CommitResult, SaveRequest
from costopt.checkpoint.history import CheckpointHistory, RetentionPolicy
from costopt.checkpoint.manifest import TensorSpec
from costopt.checkpoint.repository import CheckpointRepository
from costopt.checkpoint.sharded.boxes import TensorBox
from costopt.checkpoint.sharded.index import PlacedBox, ShardLayout
from costopt.domain.errors import CheckpointError
from costopt.store.folder import FileStore
from tests.support.errors import has_code
from tests.support.failing_store import Failing
from tests.support.shard_gang import COLUMNS, WEIGHTS, ShardGang


def gang(folder: Path, **options: object) -> ShardGang:
    return ShardGang(lambda: CheckpointRepository(FileStore(folder), str(folder)), **options)  # type: ignore[arg-type]


def names(results: list[CommitResult | CheckpointError]) -> set[str]:
    return {str(r.name) if isinstance(r, CommitResult) else r.message for r in results}


def line(folder: Path) -> tuple[str, ...]:
    head = CheckpointRepository(FileStore(folder), str(folder)).head()
    return () if head is None else head.line


def test_what_all_ranks_wrote_becomes_one_checkpoint(tmp_path: Path) -> None:
    ours = gang(tmp_path)
    assert names(ours.save(10)) == {"step-000000010.1.0"}
    assert names(ours.save(20)) == {"step-000000020.1.0"}
    history = CheckpointHistory.open(str(tmp_path))
    newest, older = history.list()
    assert newest.manifest is not None
    assert newest.manifest.parent == older.name == "step-000000010.1.0"
    assert newest.manifest.shards is not None
    assert newest.manifest.shards.tensors == (WEIGHTS,)
    assert newest.is_newest
    assert [history.verify(entry.name) for entry in (newest, older)] == [None, None]
    stored = sum(f.stat().st_size for f in (tmp_path / newest.name).iterdir() if f.name[0] == "r")
    assert newest.manifest.own_bytes == stored


def test_rollback_tags_branch_and_prune_know_sharded_checkpoints(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ours = gang(folder, keep=9)
    for step in (1, 2, 3, 4):
        ours.save(step)
    history = CheckpointHistory.open(str(folder))
    history.tag("step-000000001.1.0", "good")
    history.rollback("step-000000002.1.0")
    assert line(folder)[0] == "step-000000002.1.0"
    (failed, *_) = ours.save(5)
    assert isinstance(failed, CheckpointError)
    assert failed.code == "superseded"
    history.branch("good", str(tmp_path / "branch"))
    branched = CheckpointHistory.open(str(tmp_path / "branch"))
    assert branched.verify("step-000000001.1.0") is None
    history.prune(RetentionPolicy(1), apply=True)
    assert line(folder) == ("step-000000002.1.0", "step-000000001.1.0")
    assert history.verify("good") is None


@pytest.mark.parametrize("part", ["tensors-00000.bin", "objects.pt", "index"])
def test_damage_and_loss_of_any_file_is_found(tmp_path: Path, part: str) -> None:
    gang(tmp_path).save(1)
    history = CheckpointHistory.open(str(tmp_path))
    (victim,) = tmp_path.glob(f"step-*/r00002-*-{part}")
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)
    assert "r00002" in (history.verify("step-000000001.1.0") or "")
    victim.unlink()
    assert "is missing" in (history.verify("step-000000001.1.0") or "")


def test_a_rank_that_never_comes_leaves_no_checkpoint(tmp_path: Path) -> None:
    ours = gang(tmp_path, timeout_s=0.5)
    ours.save(1)
    results = ours.save(2, ranks=[0, 1, 2])
    assert all("of rank 3" in error.message for error in results)  # type: ignore[union-attr]
    assert line(tmp_path) == ("step-000000001.1.0",)
    assert not list(tmp_path.glob("step-000000002*/r*"))
    # It comes too late: what was abandoned stays abandoned.
    (late,) = ours.save(2, ranks=[3])
    assert isinstance(late, CheckpointError)
    assert "abandoned" in late.message
    assert names(ours.save(3)) == {"step-000000003.1.0"}
    assert not list(tmp_path.glob("step-000000002*"))


def test_the_reason_of_one_rank_reaches_all(tmp_path: Path) -> None:
    def fails(request: str, key: str) -> str | None:
        return "before" if request == "put" and "r00002" in key else None

    ours = ShardGang(lambda: CheckpointRepository(Failing(tmp_path, fails), str(tmp_path)))
    results = ours.save(1)
    assert all(isinstance(r, CheckpointError) for r in results)
    assert all("Input/output error" in r.message for r in results)  # type: ignore[union-attr]
    assert line(tmp_path) == ()


def test_another_rank_commits_when_the_first_is_gone(tmp_path: Path) -> None:
    ours = gang(tmp_path)
    first = ours.committers[0]
    name = "step-000000001.1.0"
    first._take(checkpoint(name))
    first._write_shard(checkpoint(name), ours.request(0, 1))
    assert names(ours.save(1, ranks=[1, 2, 3])) == {name}
    assert CheckpointHistory.open(str(tmp_path)).verify(name) is None
    assert line(tmp_path) == (name,)


def test_a_manifest_without_head_is_finished_by_another_rank(tmp_path: Path) -> None:
    ours = gang(tmp_path)
    name = checkpoint("step-000000001.1.0")
    for rank, committer in enumerate(ours.committers):
        committer._take(name)
        committer._write_shard(name, ours.request(rank, 1))
    ours.committers[0]._put_manifest(name)
    before = (tmp_path / str(name) / "manifest.json").read_bytes()
    ours.committers[2]._put_manifest(name)
    assert (tmp_path / str(name) / "manifest.json").read_bytes() == before
    ours.committers[2]._await_head(name)
    ours.committers[3]._await_head(name)
    assert line(tmp_path) == (str(name),)


def test_a_gang_that_wakes_changes_nothing(tmp_path: Path) -> None:
    asleep = gang(tmp_path)
    asleep.save(1)
    name = checkpoint("step-000000002.1.0")
    for rank, committer in enumerate(asleep.committers):
        committer._take(name)
        committer._write_shard(name, asleep.request(rank, 2))
    ours = gang(tmp_path)
    ours.save(2)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for committer in asleep.committers:
        committer._put_manifest(name)
        with pytest.raises(CheckpointError, check=has_code("superseded")):
            committer._await_head(name)
    results = asleep.save(3)
    assert {r.code for r in results} == {"superseded"}  # type: ignore[union-attr]
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {path: after.get(path) for path in before} == before
    assert line(tmp_path)[0] == "step-000000002.1.1"


def test_a_checkpoint_that_another_gang_continues_is_not_removed(tmp_path: Path) -> None:
    ours = gang(tmp_path)
    ours.save(1)
    gang(tmp_path)
    ours.committers[3]._await_head(checkpoint("step-000000001.1.0"))
    assert CheckpointHistory.open(str(tmp_path)).verify("step-000000001.1.0") is None


def lying(ours: ShardGang, box: TensorBox, tensor: TensorSpec = WEIGHTS) -> SaveRequest:
    layout = ShardLayout((tensor,), (PlacedBox(0, box, 0),))
    return replace(ours.request(1, 1), layout=layout.encode())


@pytest.mark.parametrize(
    ("box", "tensor", "said"),
    [
        (TensorBox((16, 0), (15, COLUMNS)), WEIGHTS, "elements of weights are missing"),
        (TensorBox((15, 0), (16, COLUMNS)), WEIGHTS, "overlap"),
        (TensorBox((16, 0), (17, COLUMNS)), WEIGHTS, "did not write all"),
        (TensorBox((0, 0), (1, 1)), TensorSpec("weights", "int8", WEIGHTS.shape), "another type"),
    ],
)
def test_boxes_that_do_not_tile_are_not_committed(
    tmp_path: Path, box: TensorBox, tensor: TensorSpec, said: str
) -> None:
    ours = gang(tmp_path)
    results = ours.save(1, rank1=lying(ours, box, tensor))
    assert all(said in error.message for error in results)  # type: ignore[union-attr]
    assert line(tmp_path) == ()
    assert names(ours.save(2)) == {"step-000000002.1.0"}


def test_a_layout_that_changes_is_checked_again(tmp_path: Path) -> None:
    ours = gang(tmp_path)
    ours.save(1)
    short = replace(lying(ours, TensorBox((16, 0), (15, COLUMNS))), step=2)
    assert all("missing" in error.message for error in ours.save(2, rank1=short))  # type: ignore[union-attr]


def test_a_step_is_saved_once(tmp_path: Path) -> None:
    ours = gang(tmp_path)
    assert names(ours.save(1)) == names(ours.save(1)) == {"step-000000001.1.0"}
    assert CheckpointHistory.open(str(tmp_path)).verify("step-000000001.1.0") is None


def checkpoint(text: str):  # type: ignore[no-untyped-def]
    from costopt.checkpoint.manifest import CheckpointName

    name = CheckpointName.parse(text)
    assert name is not None
    return name
