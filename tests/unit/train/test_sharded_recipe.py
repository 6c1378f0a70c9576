"""Sharded checkpoints compare settings too, and lose nothing of an optimizer's state."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from costopt.checkpoint.repository import CheckpointRepository
from costopt.checkpoint.sharded.tensor_stream import open_source
from costopt.domain.errors import CheckpointError
from costopt.train import ShardedCheckpointer, StorageReader
from costopt.train.dcp_files import export_dcp
from costopt.train.framework_checkpoints import FrameworkCheckpoints
from costopt.train.recipe import run_recipe
from costopt.train.recipe_check import UNKNOWN
from costopt.train.sharded_state import ShardedState
from tests.support.errors import has_code


class Script:
    """One start of a loop that saves its model itself."""

    def __init__(
        self, folder: Path, *, changed: Any = "refuse", p: float = 0.1, **settings: Any
    ) -> None:
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(p))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), **{"lr": 0.1, **settings})
        self.saver = ShardedCheckpointer(folder, self.model, self.optimizer, changed=changed)

    def train(self) -> None:
        self.model(torch.ones(2, 4)).square().sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def save(self) -> None:
        self.train()
        self.saver.save(1)
        self.saver.close()

    def group(self) -> dict[str, Any]:
        return self.optimizer.param_groups[0]


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("lr of group 0", {"lr": 0.2}),
        ("weight_decay of group 0", {"weight_decay": 0.3}),
        ("module 1 p", {"p": 0.5}),
    ],
)
def test_a_changed_setting_is_refused_or_applied(
    tmp_path: Path, name: str, change: dict[str, Any]
) -> None:
    Script(tmp_path).save()
    refused = Script(tmp_path, **change)
    before = [p.detach().clone() for p in refused.model.parameters()]
    with pytest.raises(CheckpointError, match=name) as error:
        refused.saver.restore()
    assert error.value.code == "other_recipe"
    assert all(map(torch.equal, before, refused.model.parameters()))
    assert not refused.optimizer.state
    applied = Script(tmp_path, **change, changed="apply")
    restored = applied.saver.restore()
    assert restored is not None
    assert [name in reason for reason in restored.changed] == [True]
    assert applied.group() == refused.group() | {"params": applied.group()["params"]}
    assert len(applied.optimizer.state) == 2


@pytest.mark.process
def test_kept_settings_are_those_that_were_saved(tmp_path: Path) -> None:
    Script(tmp_path).save()
    kept = Script(tmp_path, lr=0.2, weight_decay=0.3, changed="keep")
    restored = kept.saver.restore()
    assert restored is not None
    assert len(restored.changed) == 2
    assert (kept.group()["lr"], kept.group()["weight_decay"]) == (0.1, 0.01)


@pytest.mark.process
def test_a_checkpoint_without_a_recipe_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Script(tmp_path)
    monkeypatch.setattr(old.saver._recipe, "stored", None)
    old.save()
    restored = Script(tmp_path, weight_decay=0.3).saver.restore()
    assert restored is not None
    assert restored.changed == (UNKNOWN,)


@pytest.fixture
def alone() -> Iterator[None]:
    """The only rank."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.process
@pytest.mark.usefixtures("alone")
def test_a_framework_names_another_schedule_and_refuses_other_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = tmp_path / "status.json"
    monkeypatch.setenv("COSTOPT_STATUS_FILE", str(status))

    def start(steps: int, decay: float = 0.0) -> FrameworkCheckpoints:
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=decay)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=steps)
        place = tmp_path / "checkpoints"
        return FrameworkCheckpoints(place, model, optimizer, dict, scheduler=scheduler)

    first = start(5)
    first.restore(5)
    first.after_step(5, last=True)
    first.close()
    start(9).restore(9)
    assert "scheduler total_iters 5 became 9" in status.read_text()
    with pytest.raises(CheckpointError, check=has_code("other_recipe")):
        start(9, decay=0.5).restore(9)


@pytest.fixture
def world() -> Iterator[None]:
    """Rank 0 of two, the other one of which does nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


def sharded() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1))
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    return model


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("nested", [True, False])
def test_state_that_each_process_has_alone_is_refused(nested: bool) -> None:
    model = sharded()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    parameter = next(model.parameters())
    codes: Any = torch.zeros(8, dtype=torch.int8)
    optimizer.state[parameter] = {"codes": {"int8": codes} if nested else codes}
    state = ShardedState(model, optimizer)
    with pytest.raises(CheckpointError, check=has_code("unsupported_tensor")):
        state.objects() if nested else state.shards()


@pytest.mark.usefixtures("world")
def test_a_sharded_model_has_the_recipe_of_a_whole_one() -> None:
    whole = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1))
    assert run_recipe(sharded(), None) == run_recipe(whole, None)


@pytest.mark.process
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_dcp_reads_no_tensor_into_another_dtype(tmp_path: Path) -> None:
    Script(tmp_path).save()
    target = {"model": {"0.weight": torch.zeros(4, 4, dtype=torch.bfloat16)}}
    with pytest.raises(CheckpointException, match="float32, and is to be read into"):
        load(target, storage_reader=StorageReader(tmp_path), no_dist=True)
    assert not target["model"]["0.weight"].any()
    same = {"model": {"0.weight": torch.zeros(4, 4)}}
    load(same, storage_reader=StorageReader(tmp_path), no_dist=True)
    assert same["model"]["0.weight"].any()


@pytest.mark.process
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("way", ["exported", "read"])
def test_dcp_has_all_of_an_optimizers_state_in_its_dtypes(tmp_path: Path, way: str) -> None:
    script = Script(tmp_path / "own")
    weight: Any = next(script.model.parameters())
    script.train()
    kept: dict[str, Any] = {
        "master": torch.randn(4, 4, dtype=torch.float64),
        "low": {"codes": torch.arange(3, dtype=torch.int8), "scale": 0.5},
        "name": "own",
    }
    script.optimizer.state[weight].update(copy.deepcopy(kept))
    script.saver.save(1)
    script.saver.close()
    target: dict[str, Any] = {
        "optim": {
            "state": {
                "0.weight": {
                    "master": torch.zeros(4, 4, dtype=torch.float64),
                    "low": {"codes": torch.zeros(3, dtype=torch.int8), "scale": 0.0},
                    "name": "",
                }
            }
        }
    }
    reader: Any = StorageReader(tmp_path / "own")
    if way == "exported":
        place = CheckpointRepository.open(str(tmp_path / "own"))
        export_dcp(open_source(place, place.candidates()[0][0]), tmp_path / "files")
        reader = FileSystemReader(tmp_path / "files")
    load(target, storage_reader=reader, no_dist=True)
    found = target["optim"]["state"]["0.weight"]
    assert torch.equal(found["master"], kept["master"])
    assert found["low"]["codes"].dtype is torch.int8
    assert found["low"]["codes"].tolist() == [0, 1, 2]
    assert (found["low"]["scale"], found["name"]) == (0.5, "own")
