"""Sharded checkpoints against PyTorch's: four processes on gloo, FSDP2, a state of AdamW.

``python -m benchmarks sharded --size 41``: the same state is saved in turn by ``begin`` and by
``dcp.async_save`` in a process that stages meanwhile; "blocked" is the slowest process' time from
the call to the end of the optimizer's step, less that of a step without a save. Restores are of the
slowest process, ours verified, DCP's not; those from near tiers are of processes on a node of its
own each, over loopback. Planning is simulated in one process.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from tests.support.near_nodes import NearNodes

RANKS = 4
SIZES_MB = ("41",)
SAVES = 3
LAYERS = 8
BYTES_PER_WEIGHT = 12
PLANNED_TENSORS = 2169
NEAR = "COSTOPT_BENCH_NEAR"

Figure = tuple[str, float, str]


def run(sizes_mb: list[str] | None = None) -> Iterator[Figure]:
    """Milliseconds and ratios, for states of these sizes."""
    for size in map(int, sizes_mb or SIZES_MB):
        with tempfile.TemporaryDirectory() as folder:
            yield from _run(size, Path(folder))
    for ranks in (64, 512):
        planned_s, tiled_s = _plan_s(ranks)
        who = f"{ranks} simulated ranks x {PLANNED_TENSORS} tensors"
        yield f"planning a save, {who}", planned_s, "s"
        yield f"checking that it is whole, once per layout, {who}", tiled_s, "s"


def _run(size: int, folder: Path) -> Iterator[Figure]:
    saved = _processes(RANKS, size, folder, "save")
    for key in ("costopt: blocked", "dcp: blocked", "costopt: durable", "dcp: durable"):
        worst = [max(values) for values in zip(*(each[key] for each in saved), strict=True)]
        yield f"{size} MB, {key}", 1e3 * median(worst[1:]), "ms"
    for ranks in (RANKS, 3):
        found = _processes(ranks, size, folder, "restore")
        for key in ("costopt", "dcp"):
            slowest = max(each[f"{key}: restored"] for each in found)
            yield f"{size} MB, {key}: restore, {RANKS} to {ranks}", 1e3 * slowest, "ms"
        read, needed = (sum(each[key] for each in found) for key in ("read", "needed"))
        yield f"{size} MB, costopt: read / needed, {RANKS} to {ranks}", read / needed, ""
    yield from _near(size, folder)


def _near(size: int, folder: Path) -> Iterator[Figure]:
    """Of four nodes in a ring, each with the snapshot of its process and the one of its neighbour,
    one is lost: the others read all of its shards from its neighbour's memory.
    """
    nodes = NearNodes(RANKS, alive=RANKS - 1)
    os.environ[NEAR] = " ".join(nodes.addresses)
    _processes(RANKS, size, folder, "near")
    for ranks in (RANKS, RANKS - 1):
        found = _processes(ranks, size, folder, "near")
        slowest = max(each["restored"] for each in found)
        yield (
            f"{size} MB, costopt: restore from near tiers, {RANKS} to {ranks}",
            1e3 * slowest,
            "ms",
        )
        stored = sum(each["read"] for each in found)
        yield f"{size} MB, costopt: read from the store, {RANKS} to {ranks}", stored, "bytes"
    nodes.close()


def _processes(ranks: int, size: int, folder: Path, work: str) -> list[dict[str, Any]]:
    """Fork the processes; return what each measured."""
    meeting = folder / f"meeting-{os.urandom(4).hex()}"
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                _work(rank, ranks, size, folder, meeting, work)
                status = 0
            except BaseException:  # noqa: BLE001 - a fork never goes on as its parent
                traceback.print_exc()
            finally:
                os._exit(status)
        children.append(child)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    if any(statuses):
        raise SystemExit(f"a process of {work} failed: {statuses}")
    return [json.loads((folder / f"{work}-{rank}").read_text()) for rank in range(ranks)]


def _work(rank: int, ranks: int, size: int, folder: Path, meeting: Path, work: str) -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting.as_uri(), rank=rank, world_size=ranks)
    width = int((size * 1e6 / BYTES_PER_WEIGHT / LAYERS) ** 0.5)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(width, width, bias=False) for _ in range(LAYERS)]
    model = torch.nn.Sequential(*layers)
    mesh = init_device_mesh("cpu", (ranks,))
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    measure = {"save": _save, "restore": _restore, "near": _restore_near}[work]
    found = measure(model, optimizer, width, folder)
    (folder / f"{work}-{rank}").write_text(json.dumps(found))
    dist.destroy_process_group()


def _step(model: Any, optimizer: Any, width: int) -> None:
    import torch

    model(torch.ones(8, width)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def _save(model: Any, optimizer: Any, width: int, folder: Path) -> dict[str, Any]:
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

    from costopt.train import ShardedCheckpointer

    saver = ShardedCheckpointer(folder / "costopt", model, optimizer, keep=9)
    stager = DefaultStager(StagingOptions(False, True, True, False))
    found: dict[str, list[float]] = {
        f"{way}: {what}": [] for way in ("costopt", "dcp") for what in ("blocked", "durable")
    }
    _step(model, optimizer, width)
    for number in range(SAVES):
        dist.barrier()
        began = time.monotonic()
        _step(model, optimizer, width)
        plain_s = time.monotonic() - began
        dist.barrier()
        began = time.monotonic()
        saver.begin(number)
        _step(model, optimizer, width)
        found["costopt: blocked"].append(max(0.0, time.monotonic() - began - plain_s))
        saver.wait()
        found["costopt: durable"].append(time.monotonic() - began)
        dist.barrier()
        began = time.monotonic()
        weights, moments = get_state_dict(model, optimizer)
        response = dcp.async_save(  # type: ignore[attr-defined]
            {"model": weights, "optim": moments},
            checkpoint_id=folder / f"dcp-{number}",
            async_checkpointer_type=AsyncCheckpointerType.PROCESS,
            async_stager=stager,
        )
        model(_inputs(width)).square().mean().backward()
        if hasattr(response, "staging_completion"):
            response.staging_completion.result()
        optimizer.step()
        optimizer.zero_grad()
        found["dcp: blocked"].append(max(0.0, time.monotonic() - began - plain_s))
        written: Any = getattr(response, "upload_completion", response)
        written.result()
        found["dcp: durable"].append(time.monotonic() - began)
    saver.close()
    return found


def _inputs(width: int) -> Any:
    import torch

    return torch.ones(8, width)


def _restore(model: Any, optimizer: Any, width: int, folder: Path) -> dict[str, Any]:
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    from costopt.train import ShardedCheckpointer

    _step(model, optimizer, width)
    weights, moments = get_state_dict(model, optimizer)
    dist.barrier()
    began = time.monotonic()
    state = {"model": weights, "optim": moments}
    dcp.load(state, checkpoint_id=folder / f"dcp-{SAVES - 1}")  # type: ignore[attr-defined]
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    dcp_s = time.monotonic() - began
    saver = ShardedCheckpointer(folder / "costopt", model, optimizer)
    dist.barrier()
    began = time.monotonic()
    restored = saver.restore()
    ours_s = time.monotonic() - began
    assert restored is not None
    needed = sum(shard.held.size_bytes for shard in saver._state.shards())
    times = {"costopt: restored": ours_s, "dcp: restored": dcp_s}
    return {**times, "read": restored.bytes_read, "needed": needed}


def _restore_near(model: Any, optimizer: Any, width: int, folder: Path) -> dict[str, Any]:
    import torch.distributed as dist

    from costopt.train import ShardedCheckpointer
    from costopt.train.sharded_ranks import CopyRanks, _alike

    everyone = CopyRanks.of().everyone
    ranks = CopyRanks(everyone, _alike(everyone, everyone.rank))
    address = os.environ[NEAR].split()[everyone.rank]
    _step(model, optimizer, width)
    saver = ShardedCheckpointer(folder / "near", model, optimizer, ranks=ranks, near=address)
    dist.barrier()
    began = time.monotonic()
    restored = saver.restore()
    took_s = time.monotonic() - began
    if restored is None:
        saver.save(1)
    saver.close()
    return {"restored": took_s, "read": 0 if restored is None else restored.bytes_read}


def _plan_s(ranks: int) -> tuple[float, float]:
    """Return the seconds that one rank takes to decide who writes what, from what all others sent,
    and the coordinator's writer to see that what they wrote tiles every tensor.
    """
    from costopt.checkpoint.manifest import TensorSpec
    from costopt.checkpoint.sharded.boxes import HeldBox, TensorBox
    from costopt.checkpoint.sharded.tiling import incomplete_reason
    from costopt.checkpoint.sharded.writers import box_keys
    from costopt.train.sharded_state import ShardPlan

    specs = [TensorSpec(f"t{n}", "float32", (ranks * 8, 64)) for n in range(PLANNED_TENSORS)]

    def held(rank: int) -> list[HeldBox]:
        return [HeldBox(spec, TensorBox((rank * 8, 0), (8, 64)), 2048) for spec in specs]

    keys = [box_keys(held(rank)) for rank in range(ranks)]
    own = held(0)
    began = time.monotonic()
    box_keys(own)
    layouts = [ShardPlan(own, keys, 0).layout]
    planned_s = time.monotonic() - began
    nobody = [box_keys([])] * (ranks - 1)
    layouts += [ShardPlan(held(rank), [box_keys(held(rank)), *nobody], 0).layout
                for rank in range(1, ranks)]  # fmt: skip
    streams = [2048 * PLANNED_TENSORS] * ranks
    began = time.monotonic()
    reason = incomplete_reason(layouts, streams)
    assert reason is None, reason
    return planned_s, time.monotonic() - began


if __name__ == "__main__":
    for label, value, unit in run():
        print(f"{label}: {value:.3f} {unit}")
