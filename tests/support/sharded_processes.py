"""Processes that train a tiny sharded model over gloo, forked from one that has imported PyTorch.

``python -m tests.support.sharded_processes FOLDER PLAN…`` runs each plan in turn: a mesh, as in
``fsdp4``, ``hsdp2x2``, ``tp2x2`` or ``one``, and what its processes do, as in ``save:3``.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # optimizers import it when they are made
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

from costopt.domain.errors import CheckpointError
from costopt.train import FailedSave, ShardedCheckpointer, StorageReader, StorageWriter
from costopt.train.sharded_ranks import CopyRanks, _alike
from tests.support.process_state import pause

WORLD = {"one": 1, "fsdp2": 2, "fsdp3": 3, "fsdp4": 4, "hsdp2x2": 4, "tp2x2": 4}
WIDTH = int(os.environ.get("TEST_WIDTH", "48"))


class Block(nn.Module):
    """Two layers with a residual, and running statistics."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 3 * width + 2)
        self.down = nn.Linear(3 * width + 2, width)
        self.mean: Tensor
        self.register_buffer("mean", torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean += x.detach().mean(0)
        changed: Tensor = self.down(torch.relu(self.up(x)))
        return x + changed


def build(kind: str, width: int = WIDTH, layers: int = 3) -> tuple[nn.Module, torch.optim.AdamW]:
    """A model on the mesh, and its optimizer."""
    torch.manual_seed(5)
    model = nn.Sequential(*(Block(width) for _ in range(layers)))
    if kind != "one":
        mesh = _mesh(kind)
        if kind.startswith("tp"):
            plan: dict[str, ParallelStyle] = {}
            for number in range(layers):
                plan |= {f"{number}.up": ColwiseParallel(), f"{number}.down": RowwiseParallel()}
            parallelize_module(model, mesh["tp"], plan)
            mesh = mesh["dp"]
        for block in model:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)


def _mesh(kind: str) -> DeviceMesh:
    if kind.startswith("fsdp"):
        return init_device_mesh("cpu", (WORLD[kind],), mesh_dim_names=("dp",))
    names = ("replicate", "dp") if kind.startswith("hsdp") else ("dp", "tp")
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=names)


def digest(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """Of the whole state, whatever mesh it is on. Collective."""
    made = hashlib.sha256()
    named = dict(model.state_dict(keep_vars=True))
    for name, tensor in sorted(named.items()):
        made.update(name.encode() + _bytes(tensor))
        for key, value in sorted(optimizer.state.get(tensor, {}).items()):
            made.update(key.encode() + _bytes(value))
    return made.hexdigest()


def _bytes(tensor: Tensor) -> bytes:
    whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return whole.detach().contiguous().numpy().tobytes()


def act(folder: Path, kind: str, actions: list[str]) -> None:  # noqa: C901 - a list of actions
    """Do what was said, and write digests of states for the test to compare."""
    model, optimizer = build(kind)
    rank = dist.get_rank() if dist.is_initialized() else 0
    ranks = CopyRanks.of()
    near = os.environ.get("TEST_NEAR", "").split()
    if near:  # each rank is on a node of its own
        ranks = CopyRanks(ranks.everyone, _alike(ranks.everyone, rank))
    saver = ShardedCheckpointer(
        folder / "checkpoints",
        model,
        optimizer,
        extra=lambda: {"rank": rank},
        timeout_s=30,
        ranks=ranks,
        near=near[rank] if near else None,
    )
    step = 0
    for action in actions:
        name, _, number = action.partition(":")
        if name == "train":
            for _ in range(int(number)):
                _step(model, optimizer)
                step += 1
        elif name == "save":
            saved = saver.save(step, labels={"loss": "0.5"})
            assert saved.units == step
        elif name == "begin":  # the next step must not be in it
            made = digest(model, optimizer)
            saver.begin(step)
            _step(model, optimizer)
            (outcome,) = saver.wait()
            assert not isinstance(outcome, FailedSave), outcome
            _note(folder, rank, made)
        elif name == "lost":  # a save that only the near tiers take
            (folder / "checkpoints" / f"step-{step:09d}.0.0").touch()
            saver.begin(step)
            (outcome,) = saver.wait()
            assert isinstance(outcome, FailedSave)
        elif name == "writer":
            _note(folder, rank, f"writer {saver.writer_pid}")
        elif name == "kill":  # the writer of all ranks
            writer = saver.writer_pid
            assert writer is not None
            dist.barrier()
            if rank == 0:
                pause(writer)
            dist.barrier()
            saver.begin(step)
            saver.copied()
            dist.barrier()
            if rank == 0:
                os.kill(writer, signal.SIGKILL)
            (outcome,) = saver.wait()
            assert isinstance(outcome, FailedSave)
        elif name == "near":
            restored = saver.restore()
            assert restored is not None
            step = restored.step
            said = f"{step} {restored.tier} {restored.bytes_read} {restored.name or '-'}"
            _note(folder, rank, f"{digest(model, optimizer)} {said}")
            assert saver.refused == ()
        elif name == "share":
            shared = ranks.everyone.share(["small", bytes([rank + 1]) * int(number)])
            _note(folder, rank, f"{shared[0]} {sum(shared[1])}")
        elif name == "note":
            _note(folder, rank, digest(model, optimizer))
        elif name == "restore":
            restored = saver.restore()
            assert restored is not None
            step = restored.step
            _note(folder, rank, digest(model, optimizer))
            _note(folder, rank, f"{restored.extra['rank']} {[str(r) for r in saver.refused]}")
        elif name == "fails":
            try:
                saver.restore()
            except CheckpointError as error:
                _note(folder, rank, f"{error.code}: {error.message}")
        elif name == "full":
            _write_full(folder, model, optimizer)
        else:
            _use_dcp(folder, rank, step, action, model, optimizer)
    saver.close()


def _use_dcp(
    folder: Path,
    rank: int,
    step: int,
    action: str,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
) -> None:
    """Save as in ``dcp.save``, or load as in ``dcp.load:FOLDER``, through our storage."""
    state = _nested(model, optimizer)
    name, _, place = action.partition(":")
    if name == "dcp.save":
        save(state, storage_writer=StorageWriter(folder / "dcp", step=step))
        return
    load(state, storage_reader=StorageReader(folder / place))
    weights, moments = state["model"], state["optim"]
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    _note(folder, rank, digest(model, optimizer))


def _nested(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optim": moments}


def _write_full(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights, moments = get_state_dict(model, optimizer, options=options)
    if not dist.is_initialized() or dist.get_rank() == 0:
        torch.save({"model": weights, "optim": moments}, folder / "full.pt")


def _step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.ones(4, WIDTH) / 7).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def _note(folder: Path, rank: int, text: str) -> None:
    with (folder / f"rank{rank}").open("a") as file:
        file.write(text + "\n")


def fork(world: int, folder: Path, work: Callable[[], None]) -> None:
    """Fork processes of one gloo group and wait for all. Raise SystemExit if one fails."""
    meeting = folder / f"meeting-{os.urandom(4).hex()}"
    children = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                torch.set_num_threads(1)
                if world > 1:
                    dist.init_process_group(
                        "gloo", init_method=meeting.as_uri(), rank=rank, world_size=world
                    )
                work()
                if world > 1:
                    dist.destroy_process_group()
                status = 0
            except BaseException:  # noqa: BLE001 - a fork never goes on as its parent
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        children.append(child)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(statuses):
        raise SystemExit(f"processes ended with {statuses}")


if __name__ == "__main__":
    for plan in sys.argv[2:]:
        kind, *actions = plan.split(",")
        folder = Path(sys.argv[1])
        fork(WORLD[kind], folder, partial(act, folder, kind, actions))
