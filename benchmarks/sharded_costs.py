"""What a sharded save costs a step on idle cores, a lost copy of the model, and an export.

``python -m benchmarks sharded`` runs these after the comparison.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

SAVES = 20
LAYERS_OF_TENSORS = {400: 100, 2200: 550}
"""A parameter has two moments and a step."""
EXPORTED_WIDTH = 2000
LOSSES = 3

Figure = tuple[str, float, str]


def run_costs() -> Iterator[Figure]:
    """Yield milliseconds, seconds and MiB."""
    for tensors in LAYERS_OF_TENSORS:
        times = _alone("idle", str(tensors))
        label = f"save of {tensors} tensors on one process, blocked"
        yield f"{label}: median", 1e3 * median(times), "ms"
        yield f"{label}: least", 1e3 * min(times), "ms"
    with tempfile.TemporaryDirectory() as folder:
        _alone("state", folder)
        export_s, copy_s, more_mib = _alone("export", folder)
    weights = f"{8 * EXPORTED_WIDTH**2 * 4 / 1e6:.0f} MB of weights"
    yield f"export of {weights} to safetensors / a file copy", export_s / copy_s, "x"
    yield f"export of {weights}: memory", more_mib, "MiB"
    pauses = list(_lost_copies_s())
    yield "a lost copy of three, until the others continue: median", median(pauses), "s"
    yield "a lost copy of three, until the others continue: worst", max(pauses), "s"


def _alone(*arguments: str) -> list[float]:
    """Return what a new process measures, which has imported nothing else."""
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.sharded_costs", *arguments],
        stdout=subprocess.PIPE,
        check=True,
    )
    found: list[float] = json.loads(ran.stdout)
    return found


def _idle(tensors: int) -> list[float]:
    """Return what each save makes the loop wait in calls: to begin, and before the step."""
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    from costopt.train import ShardedCheckpointer

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        meeting = (Path(folder) / "meeting").as_uri()
        dist.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
        model = torch.nn.Sequential(
            *(torch.nn.Linear(64, 64, bias=False) for _ in range(LAYERS_OF_TENSORS[tensors]))
        )
        fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters())
        saver = ShardedCheckpointer(Path(folder) / "saved", model, optimizer, keep=1)
        times = []
        for step in range(SAVES + 1):
            model(torch.ones(1, 64)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            began = time.monotonic()
            saver.begin(step)
            blocked_s = time.monotonic() - began
            model(torch.ones(1, 64)).sum().backward()
            began = time.monotonic()
            saver.copied()
            times.append(blocked_s + time.monotonic() - began)
            saver.wait()
        saver.close()
        dist.destroy_process_group()
    return times[1:]


def _save_state(folder: Path) -> list[float]:
    import torch

    from costopt.train import ShardedCheckpointer

    model = torch.nn.Sequential(
        *(torch.nn.Linear(EXPORTED_WIDTH, EXPORTED_WIDTH, bias=False) for _ in range(8))
    )
    saver = ShardedCheckpointer(folder / "saved", model)
    saver.save(1)
    saver.close()
    return []


def _export(folder: Path) -> list[float]:
    """Return seconds of an export and of a copy of what it wrote, and memory of the export."""
    from costopt.checkpoint.repository import CheckpointRepository
    from costopt.checkpoint.sharded.safetensors import export_safetensors
    from costopt.checkpoint.sharded.tensor_stream import open_source

    place = CheckpointRepository.open(str(folder / "saved"))
    names, _ = place.candidates()
    before_kib = _most_kib()
    exports, copies = [], []
    for number in range(3):
        began = time.monotonic()
        files = export_safetensors(open_source(place, names[0]), folder / f"to-{number}")
        exports.append(time.monotonic() - began)
        after_kib = _most_kib()
        began = time.monotonic()
        for file in files:
            with file.open("rb") as source, file.with_suffix(".copy").open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
                target.flush()
                os.fsync(target.fileno())
        copies.append(time.monotonic() - began)
    return [median(exports), median(copies), (after_kib - before_kib) / 1024]


def _most_kib() -> int:
    """Return the most memory that this process held, which is not its parent's as ru_maxrss is."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def _lost_copies_s() -> Iterator[float]:
    """Kill one of three copies, each of two processes, of a tiny model; yield how long the others
    paused, each time. All must end with the same bits.
    """
    from tests.faults.test_attached_shards import Copies
    from tests.support import attached_shards
    from tests.support.forked_trainers import TrainerFactory

    states = set()
    with TrainerFactory(attached_shards.__file__) as factory:
        for _ in range(LOSSES):
            with tempfile.TemporaryDirectory() as folder:
                copies = Copies(factory, Path(folder))
                lost, *others = copies.together(3, hold=[5])
                copies.reached(lost, 5)
                for pid in copies.pids[lost]:
                    os.kill(pid, signal.SIGKILL)
                copies.go(5)
                found = copies.finish(*others)
                states |= {each["state"] for each in found}
                copies.server.close()
                yield max(float(each["regrouped"][-1][3]) for each in found)
    assert len(states) == 1, "the bits differ"


if __name__ == "__main__":
    work, argument = sys.argv[1:]
    if work == "idle":
        measured = _idle(int(argument))
    else:
        measured = {"state": _save_state, "export": _export}[work](Path(argument))
    print(json.dumps(measured))
