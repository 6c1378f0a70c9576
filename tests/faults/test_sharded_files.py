"""Sharded checkpoints in other programs' files: safetensors and torch.distributed.checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load

from costopt.checkpoint.manifest import CheckpointName
from costopt.checkpoint.repository import CheckpointRepository
from costopt.checkpoint.sharded.importing import import_tensors
from costopt.checkpoint.sharded.safetensors import export_safetensors, read_safetensors
from costopt.checkpoint.sharded.source import ShardSource
from costopt.checkpoint.sharded.tensor_stream import open_source
from costopt.cli.main import cli
from costopt.domain.errors import CheckpointError
from costopt.train import ShardedCheckpointer
from costopt.train.dcp_files import export_dcp, read_dcp
from tests.faults.test_sharded_checkpointer import Training, run
from tests.support.errors import has_code


def newest(folder: Path) -> ShardSource:
    place = CheckpointRepository.open(str(folder))
    return open_source(place, place.candidates()[0][0])


def same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name
        assert found[name].dtype == tensor.dtype


@pytest.mark.slow
@pytest.mark.worker_group("processes")
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_what_a_mesh_saved_is_exported_bit_for_bit(tmp_path: Path) -> None:
    run(tmp_path, "tp2x2,train:2,save,full")
    full: dict[str, Any] = torch.load(tmp_path / "full.pt")
    source = newest(tmp_path / "checkpoints")
    (file,) = export_safetensors(source, tmp_path / "weights")
    same(load_file(file), full["model"])

    export_dcp(source, tmp_path / "dcp-files")
    state: dict[str, Any] = {
        "model": {name: torch.zeros_like(tensor) for name, tensor in full["model"].items()},
        "optim": {
            "state": {
                name: {key: torch.zeros_like(value) for key, value in moments.items()}
                for name, moments in full["optim"]["state"].items()
            },
            "param_groups": [],
        },
    }
    load(state, storage_reader=FileSystemReader(tmp_path / "dcp-files"), no_dist=True)
    same(state["model"], full["model"])
    for name, moments in full["optim"]["state"].items():
        same(state["optim"]["state"][name], moments)
    assert state["optim"]["param_groups"][0]["lr"] == 0.01


@pytest.mark.slow
@pytest.mark.worker_group("processes")
def test_dcp_saves_and_loads_through_our_storage(tmp_path: Path) -> None:
    ranks = run(
        tmp_path,
        "fsdp4,train:2,dcp.save,save,note",
        "fsdp3,dcp.load:dcp",
        "tp2x2,dcp.load:checkpoints",
        "one,dcp.load:dcp",
    )
    assert len(set(ranks[0])) == 1
    source = newest(tmp_path / "dcp")
    assert source.manifest.step == 2
    assert source.manifest.world_size == 4


class Bare(nn.Module):
    """Weights of several types, an empty one and a number among them."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.wide = nn.Parameter(torch.randn(300, 70))
        self.narrow = nn.Parameter(torch.randn(7, 5).bfloat16())
        self.register_buffer("count", torch.tensor(seed))
        self.register_buffer("empty", torch.empty(0, 4))
        self.register_buffer("mask", torch.randn(9) > 0)


def test_safetensors_go_in_and_out_in_several_files(tmp_path: Path) -> None:
    before = {name: t.clone() for name, t in Bare(3).state_dict().items()}
    save_file(before, tmp_path / "model.safetensors")
    place = CheckpointRepository.open(str(tmp_path / "run"))
    name = import_tensors(place, read_safetensors(tmp_path / "model.safetensors"), 7)
    parsed = CheckpointName.parse(name)
    assert parsed is not None
    files = export_safetensors(open_source(place, parsed), tmp_path / "out", max_file_bytes=1000)
    index = json.loads(files[-1].read_text())
    found: dict[str, Tensor] = {}
    for file in files[:-1]:
        loaded = load_file(file)
        assert {index["weight_map"][name] for name in loaded} == {file.name}
        found |= loaded
    same(found, before)
    again = Bare(4)
    restored = ShardedCheckpointer(tmp_path / "run", again).restore()
    assert restored is not None
    assert restored.step == 7
    same(again.state_dict(), before)
    with pytest.raises(CheckpointError, check=has_code("not_empty")):
        import_tensors(place, read_safetensors(tmp_path / "model.safetensors"), 8)
    with pytest.raises(CheckpointError, check=has_code("not_empty")):
        export_safetensors(open_source(place, parsed), tmp_path / "out")


@pytest.mark.process
def test_dcp_files_are_imported_with_the_moments(tmp_path: Path) -> None:
    ours = Training(tmp_path / "ours")
    ours.train()
    ours.saver.save(1)
    export_dcp(newest(tmp_path / "ours"), tmp_path / "files")
    place = CheckpointRepository.open(str(tmp_path / "again"))
    import_tensors(place, read_dcp(tmp_path / "files"), 1)
    again = Training(tmp_path / "again")
    assert again.saver.restore() is not None
    same(dict(again.model.state_dict()), dict(ours.model.state_dict()))
    for before, after in zip(ours.optimizer.state.values(), again.optimizer.state.values()):  # noqa: B905
        same(after, before)
    ours.train()
    again.train()
    assert torch.equal(again.weights(), ours.weights())


@pytest.mark.process
def test_a_damaged_chunk_is_not_exported(tmp_path: Path) -> None:
    ours = Training(tmp_path / "ours")
    ours.saver.save(1)
    for path in (tmp_path / "ours").glob("step-*/*tensors*"):
        path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(CheckpointError, check=has_code("damaged")):
        export_safetensors(newest(tmp_path / "ours"), tmp_path / "weights")
    assert not list((tmp_path / "weights").glob("*.safetensors"))


@pytest.mark.parametrize("content", [b"", b"\xff" * 20, b"\x02\0\0\0\0\0\0\0{}"[:9]])
def test_what_is_not_a_safetensors_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.safetensors").write_bytes(content)
    place = CheckpointRepository.open(str(tmp_path / "run"))
    with pytest.raises(CheckpointError):
        import_tensors(place, read_safetensors(tmp_path / "x.safetensors"), 0)


@pytest.mark.process
def test_the_commands(tmp_path: Path) -> None:
    ours = Training(tmp_path / "ours")
    saved = ours.saver.save(1)
    out = str(tmp_path / "weights")
    exported = CliRunner().invoke(
        cli,
        ["checkpoints", "export", str(tmp_path / "ours"), saved.name, out, "--to", "safetensors"],
    )
    assert exported.exit_code == 0, exported.output
    back = str(tmp_path / "back")
    imported = CliRunner().invoke(
        cli, ["checkpoints", "import", out, back, "--from", "safetensors", "--step", "5"]
    )
    assert imported.exit_code == 0, imported.output
    assert newest(tmp_path / "back").manifest.step == 5
