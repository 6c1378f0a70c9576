"""Sharded checkpoints with PyTorch: any mesh takes up what another saved, bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from costopt.checkpoint.history import CheckpointHistory
from costopt.checkpoint.sharded.writers import box_keys
from costopt.domain.errors import CheckpointError
from costopt.protocol.trainer_files import SavedCheckpoint
from costopt.train import Checkpointer, ShardedCheckpointer
from costopt.train.sharded_ranks import CopyRanks, ShardRanks
from costopt.train.sharded_state import ShardedState, ShardPlan
from tests.support.errors import has_code

ROOT = Path(__file__).parents[2]


def run(folder: Path, *plans: str, width: int = 48) -> list[list[str]]:
    """What each rank noted, in the order in which it did."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "providers")])
    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.sharded_processes", str(folder), *plans],
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "TEST_WIDTH": str(width)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr
    return [path.read_text().splitlines() for path in sorted(folder.glob("rank*"))]


@pytest.mark.slow
@pytest.mark.worker_group("processes")
def test_any_mesh_resumes_what_another_saved(tmp_path: Path) -> None:
    ranks = run(
        tmp_path,
        "fsdp4,train:2,begin",
        "hsdp2x2,restore,train:1,save,note",
        "tp2x2,restore,train:1,save,note",
        "fsdp3,restore,train:1,save,note",
        "fsdp3,restore",
        "one,restore",
        width=200,  # each process alone needs some chunks, and shares others
    )
    begun, hsdp, hsdp_extra, hsdp_trained, tp, tp_extra, tp_trained = ranks[0][:7]
    fsdp3, fsdp3_extra, fsdp3_trained, same, _, one, one_extra = ranks[0][7:]
    assert (hsdp, tp, fsdp3, one) == (begun, hsdp_trained, tp_trained, fsdp3_trained)
    assert same == fsdp3_trained
    assert len({begun, hsdp_trained, tp_trained, fsdp3_trained}) == 4
    assert {hsdp_extra, tp_extra, fsdp3_extra, one_extra} == {"0 []"}
    # A rank gets its own extra where the number of ranks is as it was, else rank 0's.
    assert [noted[2] for noted in ranks] == [f"{rank} []" for rank in range(4)]
    assert ranks[2][8] == "0 []"
    history = CheckpointHistory.open(str(tmp_path / "checkpoints"))
    entries = history.list()
    assert [history.verify(entry.name) for entry in entries] == [None] * 3
    steps = [entry.manifest.step for entry in entries if entry.manifest is not None]
    assert steps == [5, 4, 3]
    meshes = [e.manifest.shards.mesh for e in entries if e.manifest and e.manifest.shards]
    assert meshes == [(("dp", 3),), (("dp", 2), ("tp", 2)), (("replicate", 2), ("dp", 2))]
    sizes = [
        sum(file.stat().st_size for file in path.glob(f"r{rank:05d}-*-tensors-*"))
        for path in (tmp_path / "checkpoints").glob("step-000000003*")
        for rank in range(4)
    ]
    assert max(sizes) < 1.01 * min(sizes)


@pytest.mark.slow
@pytest.mark.worker_group("processes")
def test_ranks_share_what_the_first_one_has(tmp_path: Path) -> None:
    sizes = (1, 65_000, 65_536, 1_000_000)
    ranks = run(tmp_path, "fsdp2," + ",".join(f"share:{size}" for size in sizes))
    assert ranks == [[f"small {size}" for size in sizes]] * 2


@pytest.mark.slow
@pytest.mark.worker_group("processes")
def test_the_ranks_of_a_node_share_a_writer_and_start_it_again(tmp_path: Path) -> None:
    plan = "fsdp3,train:1,save,writer,kill,train:1,save,writer,note"
    ranks = run(tmp_path, plan, "fsdp3,restore")
    first, again, trained, restored, _ = ranks[0]
    assert ranks[1][:2] == ranks[2][:2] == [first, again]
    assert first != again
    assert restored == trained


class Training:
    """A small model with a buffer, in this process alone."""

    def __init__(self, folder: Path, width: int = 200) -> None:
        torch.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1, fused=True)
        self.saver = ShardedCheckpointer(folder, self.model, self.optimizer, keep=9)
        self.width = width

    def train(self) -> None:
        self.model(torch.ones(2, self.width)).square().sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def weights(self) -> torch.Tensor:
        return torch.cat([t.flatten().float() for t in self.model.state_dict().values()])


@pytest.mark.process
def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    ours = Training(tmp_path)
    for step in (1, 2):
        ours.train()
        ours.saver.save(step)
    newest = (tmp_path / "step-000000002.0.0").glob("*tensors*")
    data = bytearray((path := next(newest)).read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    again = Training(tmp_path)
    restored = again.saver.restore()
    assert restored is not None
    assert restored.step == 1
    (refused,) = again.saver.refused
    assert "is damaged between bytes" in refused.message
    again.train()
    saved = again.saver.save(2)
    assert saved.name == "step-000000002.0.1"
    assert CheckpointHistory.open(str(tmp_path)).list()[0].manifest.parent == restored.name  # type: ignore[union-attr]
    with pytest.raises(CheckpointError, match="has taken over"):
        ours.saver.save(3)


@pytest.mark.process
def test_large_tensors_are_read_into_the_memory_that_they_have(tmp_path: Path) -> None:
    ours, again = Training(tmp_path, width=600), Training(tmp_path, width=600)
    for training in (ours, again):
        training.train()
    again.train()
    ours.saver.save(1)
    held = {shard.spec.name: shard.address for shard in again.saver._state.shards()}
    restored = again.saver.restore()
    assert restored is not None
    assert {s.spec.name: s.address for s in again.saver._state.shards()} == held
    stored = sum(path.stat().st_size for path in tmp_path.glob("step-*/*tensors*"))
    assert stored <= restored.bytes_read < 1.1 * stored
    again.train()
    ours.train()
    assert torch.equal(again.weights(), ours.weights())


@pytest.mark.process
def test_where_none_is_valid_any_more_training_does_not_go_on(tmp_path: Path) -> None:
    ours = Training(tmp_path)
    ours.train()
    ours.saver.save(1)
    for path in tmp_path.glob("step-*/*tensors*"):
        path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(CheckpointError, check=has_code("damaged")):
        Training(tmp_path).saver.restore()


@pytest.mark.process
def test_a_step_without_copied_waits_for_the_copy(tmp_path: Path) -> None:
    ours = Training(tmp_path)
    ours.train()
    before = ours.weights()
    ours.saver.begin(1)
    ours.train()
    ours.saver.wait()
    again = Training(tmp_path)
    assert again.saver.restore() is not None
    assert torch.equal(again.weights(), before)
    again.train()
    assert torch.equal(again.weights(), ours.weights())


@pytest.mark.process
def test_another_model_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    ours = Training(tmp_path)
    ours.train()
    ours.saver.save(1)
    other = Training(tmp_path, width=100)
    before = other.weights()
    with pytest.raises(CheckpointError, check=has_code("other_model")):
        other.saver.restore()
    assert torch.equal(other.weights(), before)
    assert not other.optimizer.state


@pytest.mark.process
def test_each_kind_of_checkpoint_names_what_restores_it(tmp_path: Path) -> None:
    ours = Training(tmp_path / "sharded")
    ours.saver.save(1)
    with pytest.raises(CheckpointError, check=has_code("sharded")):
        Checkpointer(tmp_path / "sharded").restore()
    Checkpointer(tmp_path / "whole").save(1, {"weights": torch.ones(3)})
    with pytest.raises(CheckpointError, check=has_code("not_sharded")):
        Training(tmp_path / "whole").saver.restore()


def test_an_empty_place_has_nothing_to_restore(tmp_path: Path) -> None:
    assert Training(tmp_path).saver.restore() is None


def test_a_layout_is_kept_until_the_tensors_are_others() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    state = ShardedState(model, optimizer)
    first = state.shards()
    assert state.shards() is first
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    trained = state.shards()
    assert len(trained) == 8
    optimizer.step()
    assert state.shards() is trained
    optimizer.load_state_dict(optimizer.state_dict())
    model.weight.data = model.weight.data.clone()
    assert state.shards() is not trained
    held = [shard.held for shard in state.shards()]
    plan = ShardPlan(held, [box_keys(held), box_keys(held)], 0)
    assert 0 < sum(offset is not None for offset in plan.offsets) < 8


def test_small_boxes_lie_together() -> None:
    model = nn.Sequential(*(nn.Linear(40, 40) for _ in range(4)))
    held = [shard.held for shard in ShardedState(model, None).shards()]
    plan = ShardPlan(held, [box_keys(held)], 0)
    placed = [(offset or 0, box.size_bytes) for offset, box in zip(plan.offsets, held, strict=True)]
    assert [size for _, size in sorted(placed)] == [160] * 4 + [6400] * 4


def test_what_cannot_be_saved_sharded_is_refused() -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("sparse", torch.ones(2, 2).to_sparse())
    with pytest.raises(CheckpointError, check=has_code("unsupported_tensor")):
        ShardedState(model, None).shards()


@pytest.mark.process
def test_a_save_on_notice_uploads_what_changed(tmp_path: Path) -> None:
    ours = Training(tmp_path, width=500)
    ours.model[0].requires_grad_(False)
    ours.train()
    whole = ours.saver.save(1)
    ours.train()
    sent = ours.saver.save_for_notice(2)
    assert isinstance(sent, SavedCheckpoint)
    assert sent.size_bytes is not None
    assert whole.size_bytes is not None
    assert sent.size_bytes < whole.size_bytes / 2
    again = Training(tmp_path, width=500)
    again.model[0].requires_grad_(False)
    restored = again.saver.restore()
    assert restored is not None
    assert restored.step == 2
    assert restored.manifest.delta is not None
    assert torch.equal(again.weights(), ours.weights())


class Stages(ShardRanks):
    """This process, and one that holds another stage of a pipeline."""

    def gather(self, value: Any) -> list[Any]:
        """Return what both hold."""
        keys, _ = value
        return [value, (keys, b"another")]


def test_the_stages_of_a_pipeline_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    ranks = CopyRanks(Stages(), ShardRanks())
    saver = ShardedCheckpointer(tmp_path, nn.Linear(2, 2), ranks=ranks)
    with pytest.raises(CheckpointError, check=has_code("unsupported_mesh")):
        saver.begin(1)
    saver.close()
    assert not CheckpointHistory.open(str(tmp_path)).list()
