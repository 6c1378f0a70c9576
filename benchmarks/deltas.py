"""What a save at a notice sends of a state of which little is trained, with and without a delta.

A folder stands for the store, at so many bytes a second. The state is 400 MB, of which adapters of
5 % of the weights are trained, one in each of 24 layers, by AdamW; the other weights are frozen.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costopt.store.folder import FileStore

if TYPE_CHECKING:
    from costopt.checkpoint.commit import CommitResult, Committer

STATE_BYTES = 400e6
TRAINED_SHARE = 0.05
LAYERS = 24
BYTES_PER_S = 100e6

Figure = tuple[str, float, str]


class SlowStore(FileStore):
    """All puts together send ``BYTES_PER_S``."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._line = threading.Lock()

    def put(self, key: str, data: bytes) -> None:
        """Write once the bytes are through."""
        with self._line:
            time.sleep(len(data) / BYTES_PER_S)
        super().put(key, data)


def run() -> Iterator[Figure]:
    """Megabytes and seconds of the save after ten more steps."""
    from costopt.checkpoint.commit import Committer
    from costopt.checkpoint.repository import CheckpointRepository

    for what, as_delta in (("all of it", False), ("a delta", True)):
        with tempfile.TemporaryDirectory() as folder:
            committer = Committer(CheckpointRepository(SlowStore(Path(folder)), folder), 1)
            training = _Training()
            _commit(committer, training, as_delta=False)
            training.steps(10)
            committed = _commit(committer, training, as_delta=as_delta)
        yield f"{what}: sent", committed.manifest.own_bytes / 1e6, "MB"
        yield f"{what}: until it was durable", committed.save_s, "s"


def _commit(committer: Committer, training: _Training, *, as_delta: bool) -> CommitResult:
    from costopt.checkpoint.commit import SaveRequest

    files = {name: memoryview(data) for name, data in training.files().items()}
    saving = SaveRequest(training.step, 1, time.monotonic(), files, as_delta=as_delta)
    return committer.commit(saving)


class _Training:
    def __init__(self) -> None:
        import torch

        weights = STATE_BYTES / 4 / (1 + 2 * TRAINED_SHARE) / LAYERS
        self.layers: list[dict[str, Any]] = [
            {
                "frozen": torch.randn(int(weights * (1 - TRAINED_SHARE))),
                "adapter": torch.randn(int(weights * TRAINED_SHARE)).requires_grad_(),
            }
            for _ in range(LAYERS)
        ]
        self.optimizer = torch.optim.AdamW([layer["adapter"] for layer in self.layers])
        self.step = 0
        self.steps(1)

    def steps(self, count: int) -> None:
        """The gradients do not matter."""
        import torch

        for _ in range(count):
            for layer in self.layers:
                layer["adapter"].grad = torch.randn_like(layer["adapter"])
            self.optimizer.step()
            self.step += 1

    def files(self) -> dict[str, bytes]:
        """As the writer cuts them."""
        import torch

        from costopt.checkpoint.writer import PART_BYTES
        from costopt.train.state_layout import StateLayout

        layout = StateLayout.of({"layers": self.layers, "optimizer": self.optimizer.state_dict()})
        tensors = bytearray(layout.tensor_bytes)
        for extent in layout.extents:
            flat = torch.empty(0, dtype=torch.uint8).set_(extent.storage)
            tensors[extent.offset : extent.offset + extent.size_bytes] = flat.numpy().tobytes()
        files = {"objects.pt": layout.pack()}
        for begin in range(0, len(tensors), PART_BYTES):
            files[f"tensors-{begin // PART_BYTES:05d}.bin"] = bytes(
                tensors[begin : begin + PART_BYTES]
            )
        return files
