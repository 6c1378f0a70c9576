"""What a save costs the training: how long it pauses, and until the state is durable.

A model with AdamW trains on the CPU; the state is the weights and both moments. Every third step is
followed by a save, in a fresh directory, by each way in turn. "stall" is the time for which the
training does nothing but wait for the save: for those that copy meanwhile, the call and the wait
before the optimizer's next step. "durable" is from the call until everything is synced to disk.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from benchmarks.tiers import restores

STATE_MB = 400
SAVES = 10
STEPS_BETWEEN = 3
INTERVAL_S = 30.0
LAYERS = 8
BATCH = 24
TENSORS_OF_A_WEIGHT = 3
"""The weight and AdamW's two moments."""

Figure = tuple[str, float, str]
State = Callable[[], dict[str, Any]]


class Way(Protocol):
    """A way to save."""

    label: str

    def begin(self, number: int, state: State) -> None:
        """Save, or begin to."""
        ...

    def copied(self) -> None:
        """Before the optimizer steps: wait until the state may change."""
        ...

    def durable(self) -> None:
        """Wait until the save that was begun is on disk."""
        ...


@dataclass(slots=True)
class Times:
    """Seconds of each save; ``walls`` are of the steps while it went on."""

    stalls: list[float] = field(default_factory=list)
    walls: list[float] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)


def run(sizes_mb: list[str] | None = None) -> Iterator[Figure]:
    """Milliseconds per save; ``sizes_mb`` are of the state, 400 MB unless given."""
    for size in map(int, sizes_mb or [str(STATE_MB)]):
        yield from _run(size)


def _run(size_mb: int) -> Iterator[Figure]:
    training = Training(size_mb)
    training.steps(3)
    with _folder() as folder, _process_group(folder):
        ways = list(_ways(folder))
        times = {way.label: Times() for way in ways}
        plain_s = []
        for number in range(SAVES):  # one of each in turn: a machine's mood changes
            plain_s.append(_plain_s(training))
            for way in ways:
                _save(training, way, number, times[way.label])
        near = list(restores(size_mb, training.state(), folder))
    for label, measured in times.items():
        yield from _figures(f"{size_mb} MB, {label}", measured, median(plain_s))
    yield from near


def _figures(label: str, times: Times, plain_s: float) -> Iterator[Figure]:
    later = sorted(times.stalls[1:])
    yield f"{label}: first stall", 1e3 * times.stalls[0], "ms"
    yield f"{label}: stall p50", 1e3 * median(later), "ms"
    yield f"{label}: stall p99", 1e3 * later[ceil(0.99 * (len(later) - 1))], "ms"
    yield f"{label}: durable p50", 1e3 * median(times.totals[1:]), "ms"
    yield f"{label}: stall at a save each {INTERVAL_S:.0f} s", 100 * median(later) / INTERVAL_S, "%"
    slower_s = max(0.0, median(times.walls[1:]) - plain_s)
    yield f"{label}: all slowing at that interval", 100 * slower_s / INTERVAL_S, "%"


class Training:
    """A training whose state is as large as was asked."""

    def __init__(self, size_mb: int) -> None:
        import torch

        weights = size_mb * 1e6 / 4 / TENSORS_OF_A_WEIGHT / LAYERS
        width = int(weights**0.5)
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(
            *(torch.nn.Linear(width, width, bias=False) for _ in range(LAYERS))
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5)
        self._batch = torch.randn(BATCH, width)

    def gradients(self) -> None:
        """Forward and backward."""
        self.model(self._batch).square().mean().backward()

    def update(self) -> None:
        """The optimizer's step."""
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def steps(self, count: int) -> None:
        """Train on."""
        for _ in range(count):
            self.gradients()
            self.update()

    def state(self) -> dict[str, Any]:
        """As a checkpoint holds it."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}


def _plain_s(training: Training) -> float:
    """Seconds of the steps between two saves, without saves."""
    began = time.perf_counter()
    training.steps(STEPS_BETWEEN)
    return time.perf_counter() - began


def _save(training: Training, way: Way, number: int, times: Times) -> None:
    """One save while training goes on."""
    began = time.perf_counter()
    way.begin(number, training.state)
    stall_s = time.perf_counter() - began
    training.gradients()
    waited = time.perf_counter()
    way.copied()
    stall_s += time.perf_counter() - waited
    training.update()
    training.steps(STEPS_BETWEEN - 1)
    times.walls.append(time.perf_counter() - began)
    way.durable()
    times.stalls.append(stall_s)
    times.totals.append(time.perf_counter() - began)


def _ways(folder: Path) -> Iterator[Way]:
    yield Ours(folder / "ours", overlap=True)
    yield Ours(folder / "ours-copied", overlap=False)
    yield TorchSave(folder / "torch")
    yield DcpSave(folder / "dcp")
    yield DcpAsync(folder / "dcp-async")


class Ours:
    """costopt.train.Checkpointer."""

    def __init__(self, folder: Path, *, overlap: bool) -> None:
        from costopt.train import Checkpointer

        self.label = f"costopt, {'copied meanwhile' if overlap else 'copied at once'}"
        self._checkpointer = Checkpointer(folder, keep=1)
        self._overlap = overlap

    def begin(self, number: int, state: State) -> None:
        """Take a snapshot."""
        assert self._checkpointer.begin(number, state(), overlap=self._overlap)

    def copied(self) -> None:
        """Wait for the copy."""
        self._checkpointer.copied()

    def durable(self) -> None:
        """Wait for the writer."""
        from costopt.protocol.trainer_files import SavedCheckpoint

        assert all(isinstance(outcome, SavedCheckpoint) for outcome in self._checkpointer.wait())


class TorchSave:
    """torch.save and fsync."""

    label = "torch.save + fsync"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()

    def begin(self, number: int, state: State) -> None:
        """Save."""
        import torch

        path = self._folder / f"{number}.pt"
        with path.open("wb") as file:
            torch.save(state(), file)
            file.flush()
            os.fsync(file.fileno())
        (self._folder / f"{number - 1}.pt").unlink(missing_ok=True)

    def copied(self) -> None:
        """It has been."""

    def durable(self) -> None:
        """It is."""


class DcpSave:
    """torch.distributed.checkpoint.save, one thread: with more it swallows write errors."""

    label = "dcp.save"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self, number: int, state: State) -> None:
        """Save."""
        from torch.distributed.checkpoint.filesystem import FileSystemWriter
        from torch.distributed.checkpoint.state_dict_saver import save

        writer = FileSystemWriter(self._folder / str(number), thread_count=1)
        save(state(), storage_writer=writer)
        shutil.rmtree(self._folder / str(number - 1), ignore_errors=True)

    def copied(self) -> None:
        """It has been."""

    def durable(self) -> None:
        """It is."""


class DcpAsync:
    """torch.distributed.checkpoint.async_save with the options that stall least on a CPU: a
    process that writes, one stager that is used again, staging in the background."""

    label = "dcp.async_save"

    def __init__(self, folder: Path) -> None:
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

        self._folder = folder
        self._stager = DefaultStager(
            StagingOptions(
                use_pinned_memory=False,
                use_shared_memory=True,
                use_async_staging=True,
                use_non_blocking_copy=False,
            )
        )
        self._response: Any = None
        self._number = 0

    def begin(self, number: int, state: State) -> None:
        """Begin to save."""
        from torch.distributed.checkpoint.filesystem import FileSystemWriter
        from torch.distributed.checkpoint.state_dict_saver import (
            AsyncCheckpointerType,
            async_save,
        )

        self._number = number
        self._response = async_save(
            state(),
            storage_writer=FileSystemWriter(self._folder / str(number), thread_count=1),
            async_checkpointer_type=AsyncCheckpointerType.PROCESS,
            async_stager=self._stager,
        )

    def copied(self) -> None:
        """Wait for the staging."""
        self._response.staging_completion.result()

    def durable(self) -> None:
        """Wait for the process."""
        self._response.upload_completion.result()
        shutil.rmtree(self._folder / str(self._number - 1), ignore_errors=True)


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="costopt-checkpoints-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _process_group(folder: Path) -> Iterator[None]:
    """What torch.distributed.checkpoint needs to save asynchronously."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()
