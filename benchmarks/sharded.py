"""Sharded checkpoints against PyTorch's: four processes on gloo, FSDP2, a state of AdamW.

``python -m benchmarks sharded --size 41 --size 309``: the same state is saved in turn by ``begin``
and by ``dcp.async_save`` in a process that stages meanwhile, and restored in turn, ours verified,
DCP's not. "blocked" is what the slowest process waits in calls: to begin, and before the
optimizer's step. "durable" is until the slowest process' save is reported as complete, by the
process that writes or to a callback, while a step is computed. Files are in the page cache when
they are restored, all of them or none ("caches dropped"). Figures are medians; ratios are of these.
Memory is what the process took (PSS) beyond what it had before its first save, shared memory
counted once, and its part of the writer, which the node's processes share equally.
Restores from near tiers are of processes on a node of its own each, over loopback. Planning is
simulated in one process, in its processor time.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from tests.support.near_nodes import NearNodes

RANKS = 4
SIZES_MB = ("41", "309")
SAVES = 5
RESTORES = 3
LAYERS = 8
BYTES_PER_WEIGHT = 12
PLANNED_TENSORS = 2169
NEAR = "COSTOPT_BENCH_NEAR"
MEMORIES = ("a process", "the writer", "a process with its part of the writer")
CACHES = ("", ", caches dropped")
MESHES = {"4 to 4": 4, "4 to 3": 3, "4 to TP 2 x FSDP 2": 4}

Figure = tuple[str, float, str]
Found = dict[str, list[float]]


def run(sizes_mb: list[str] | None = None) -> Iterator[Figure]:
    """Yield milliseconds and ratios, for states of these sizes; then what others cost."""
    from benchmarks.sharded_costs import run_costs

    for size in sizes_mb or SIZES_MB:
        with tempfile.TemporaryDirectory() as folder:
            yield from _run(int(size), Path(folder))
    for ranks in (64, 512):
        planned_s, tiled_s = _plan_s(ranks)
        who = f"{ranks} simulated ranks x {PLANNED_TENSORS} tensors"
        yield f"planning a save, {who}", planned_s, "s"
        yield f"checking that it is whole, once per layout, {who}", tiled_s, "s"
    yield from run_costs()


def _run(size: int, folder: Path) -> Iterator[Figure]:
    import torch.distributed.checkpoint
    import torch.distributed.fsdp
    import torch.distributed.tensor.parallel  # noqa: F401 - once, before the processes are forked

    import costopt.train  # noqa: F401

    saved = _processes(RANKS, size, folder, "save")
    for what in ("blocked", "durable"):
        yield from _compared(f"{size} MB, {what}", what, saved, skipped=1)
    for kind in MEMORIES:
        (most,) = _slowest(f"memory of {kind}", saved)
        yield f"{size} MB, memory of {kind} / a shard", most, "x"
    for mesh, ranks in MESHES.items():
        found = _processes(ranks, size, folder, mesh)
        for state in CACHES:
            yield from _compared(f"{size} MB, restore, {mesh}{state}", f"restored{state}", found)
        read, needed = (sum(each[key][0] for each in found) for key in ("read", "needed"))
        yield f"{size} MB, restore, {mesh}: read / needed", read / needed, "x"
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
        slowest = max(each["restored"][0] for each in found)
        yield (
            f"{size} MB, costopt: restore from near tiers, {RANKS} to {ranks}",
            1e3 * slowest,
            "ms",
        )
        stored = sum(each["read"][0] for each in found)
        yield f"{size} MB, costopt: read from the store, {RANKS} to {ranks}", stored, "bytes"
    nodes.close()


def _compared(label: str, what: str, found: list[Found], skipped: int = 0) -> Iterator[Figure]:
    ours, theirs = (
        median(_slowest(f"{way}: {what}", found)[skipped:]) for way in ("costopt", "dcp")
    )
    yield f"{label}: costopt", 1e3 * ours, "ms"
    yield f"{label}: dcp", 1e3 * theirs, "ms"
    yield f"{label}: costopt / dcp", ours / theirs, "x"


def _slowest(key: str, found: list[Found]) -> list[float]:
    return [max(values) for values in zip(*(each[key] for each in found), strict=True)]


def _processes(ranks: int, size: int, folder: Path, work: str) -> list[Found]:
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
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting.as_uri(), rank=rank, world_size=ranks)
    width = int((size * 1e6 / BYTES_PER_WEIGHT / LAYERS) ** 0.5)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(width, width, bias=False) for _ in range(LAYERS)]
    model = torch.nn.Sequential(*layers)
    mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("dp",))
    if "TP" in work:
        whole = init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("dp", "tp"))
        style = ColwiseParallel(output_layouts=Replicate())
        mesh = whole["dp"]
        parallelize_module(model, whole["tp"], {str(number): style for number in range(LAYERS)})
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    measure = {"save": _save, "near": _restore_near}.get(work, _restore)
    found = measure(model, optimizer, width, folder)
    (folder / f"{work}-{rank}").write_text(json.dumps(found))
    dist.destroy_process_group()


def _gradients(model: Any, width: int) -> None:
    import torch

    model(torch.ones(8, width)).square().mean().backward()


def _save(model: Any, optimizer: Any, width: int, folder: Path) -> Found:
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

    from costopt.protocol.trainer_files import SavedCheckpoint
    from costopt.train import ShardedCheckpointer

    saver = ShardedCheckpointer(folder / "costopt", model, optimizer, keep=9)
    stager = DefaultStager(StagingOptions(False, True, True, False))
    found: Found = {}
    _gradients(model, width)
    optimizer.step()
    found |= _memory(saver)

    def ours(number: int) -> Callable[[], Any]:
        saver.begin(number)
        return saver.copied

    def theirs(number: int) -> Callable[[], Any]:
        weights, moments = get_state_dict(model, optimizer)
        response: Any = dcp.async_save(  # type: ignore[attr-defined]
            {"model": weights, "optim": moments},
            checkpoint_id=folder / f"dcp-{number}",
            async_checkpointer_type=AsyncCheckpointerType.PROCESS,
            async_stager=stager,
        )
        written.append(getattr(response, "upload_completion", response))
        written[-1].add_done_callback(note_end)
        staged: Any = getattr(response, "staging_completion", written[-1])
        return lambda: staged.result()  # noqa: PLW0108

    written: list[Any] = []
    ended: list[float] = []

    def note_end(_: Any) -> None:
        ended.append(time.monotonic())

    def ours_s(_: float) -> float:
        (saved,) = saver.wait()
        assert isinstance(saved, SavedCheckpoint)
        assert saved.save_s is not None
        return saved.save_s

    def theirs_s(began: float) -> float:
        """Return when the last save of DCP ended; its callbacks may follow its result."""
        written[-1].result()
        while len(ended) < len(written):
            time.sleep(0.001)
        return ended[-1] - began

    ways = {"costopt": (ours, ours_s), "dcp": (theirs, theirs_s)}
    for number in range(1, SAVES + 1):
        for way, (begin, wait) in ways.items():
            dist.barrier()
            began = time.monotonic()
            copied = begin(number)
            blocked_s = time.monotonic() - began
            _gradients(model, width)
            before = time.monotonic()
            copied()
            blocked_s += time.monotonic() - before
            optimizer.step()
            optimizer.zero_grad()
            found.setdefault(f"{way}: durable", []).append(wait(began))
            found.setdefault(f"{way}: blocked", []).append(blocked_s)
    saver.close()
    return found


def _memory(saver: Any) -> Found:
    """Return what a first save takes at most, as shares of this process' shard.

    The memory that both share is counted once, by its size: read one after the other, their shares
    of it do not add up while the writer begins to read it.
    """
    import torch.distributed as dist

    dist.barrier()
    before, most = _own_bytes(os.getpid()), dict.fromkeys(MEMORIES, 0.0)
    saver.begin(0)
    while not saver.poll():
        shared = sum(arena.size_bytes for arena in saver._queue._arenas.values())
        own = _own_bytes(os.getpid()) - before + shared
        writer = 0 if saver.writer_pid is None else _own_bytes(saver.writer_pid)
        for kind, held in zip(MEMORIES, (own, writer, own + writer / RANKS), strict=True):
            most[kind] = max(most[kind], held)
        time.sleep(0.01)
    shard = sum(shard.held.size_bytes for shard in saver._state.shards())
    return {f"memory of {kind}": [size / shard] for kind, size in most.items()}


def _own_bytes(pid: int) -> int:
    """Return a process' memory, its part of what it shares, without memory that has no file."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    sizes = {key: int(size) << 10 for key, size, *_ in map(str.split, lines[1:])}
    return sizes["Pss_Anon:"] + sizes["Pss_File:"]


def _restore(model: Any, optimizer: Any, width: int, folder: Path) -> Found:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    from costopt.train import ShardedCheckpointer

    _gradients(model, width)
    optimizer.step()
    found: Found = {}
    for state in CACHES * RESTORES:
        weights, moments = get_state_dict(model, optimizer)
        _cache(folder, dropped=bool(state))
        began = time.monotonic()
        both = {"model": weights, "optim": moments}
        dcp.load(both, checkpoint_id=folder / f"dcp-{SAVES}")  # type: ignore[attr-defined]
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
        found.setdefault(f"dcp: restored{state}", []).append(time.monotonic() - began)
        saver = ShardedCheckpointer(folder / "costopt", model, optimizer)
        _cache(folder, dropped=bool(state))
        began = time.monotonic()
        restored = saver.restore()
        found.setdefault(f"costopt: restored{state}", []).append(time.monotonic() - began)
    assert restored is not None
    needed = sum(shard.held.size_bytes for shard in saver._state.shards())
    return {**found, "read": [restored.bytes_read], "needed": [needed]}


def _cache(folder: Path, *, dropped: bool) -> None:
    """Have all files in the page cache, or none of them, on all processes."""
    import torch.distributed as dist

    dist.barrier()
    for path in folder.rglob("*") if dist.get_rank() == 0 else ():
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                while not dropped and file.read(1 << 20):
                    pass
    dist.barrier()


def _restore_near(model: Any, optimizer: Any, width: int, folder: Path) -> Found:
    import torch.distributed as dist

    from costopt.train import ShardedCheckpointer
    from costopt.train.sharded_ranks import CopyRanks, _alike

    everyone = CopyRanks.of().everyone
    ranks = CopyRanks(everyone, _alike(everyone, everyone.rank))
    address = os.environ[NEAR].split()[everyone.rank]
    _gradients(model, width)
    optimizer.step()
    saver = ShardedCheckpointer(folder / "near", model, optimizer, ranks=ranks, near=address)
    dist.barrier()
    began = time.monotonic()
    restored = saver.restore()
    took_s = time.monotonic() - began
    if restored is None:
        saver.save(1)
    saver.close()
    return {"restored": [took_s], "read": [0 if restored is None else restored.bytes_read]}


def _plan_s(ranks: int) -> tuple[float, float]:
    """Return the processor's seconds that one rank takes to decide who writes what, from what all
    others sent, and the coordinator's writer to see that what they wrote tiles every tensor.
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
    began = time.process_time()
    box_keys(own)
    layouts = [ShardPlan(own, keys, 0).layout]
    planned_s = time.process_time() - began
    nobody = [box_keys([])] * (ranks - 1)
    layouts += [ShardPlan(held(rank), [box_keys(held(rank)), *nobody], 0).layout
                for rank in range(1, ranks)]  # fmt: skip
    streams = [2048 * PLANNED_TENSORS] * ranks
    began = time.process_time()
    reason = incomplete_reason(layouts, streams)
    assert reason is None, reason
    return planned_s, time.process_time() - began


if __name__ == "__main__":
    for label, value, unit in run():
        print(f"{label}: {value:.3f} {unit}")
