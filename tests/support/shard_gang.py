"""Gangs that save sharded checkpoints without torch: each rank is a thread."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from costopt.checkpoint.commit import CommitResult, SaveRequest
from costopt.checkpoint.history import RetentionPolicy
from costopt.checkpoint.lineage import compare_and_swap_head, read_head
from costopt.checkpoint.manifest import TensorSpec
from costopt.checkpoint.repository import CheckpointRepository, Head
from costopt.checkpoint.sharded.boxes import TensorBox
from costopt.checkpoint.sharded.commit import ShardCommitter, ShardGroup
from costopt.checkpoint.sharded.index import SHARD_CHUNK_BYTES, PlacedBox, ShardLayout
from costopt.domain.errors import CheckpointError

ROWS, COLUMNS = 64, 5000
WEIGHTS = TensorSpec("weights", "uint8", (ROWS, COLUMNS))


def whole(step: int) -> bytes:
    """The state of a step."""
    return random.Random(step).randbytes(ROWS * COLUMNS)


@dataclass
class ShardGang:
    """Ranks that hold equal runs of rows."""

    place: Callable[[], CheckpointRepository]
    size: int = 4
    generation: int = 1
    keep: int = 3
    timeout_s: float = 60.0
    takeover_s: float = 0.4
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    state: Callable[[int], bytes] = whole
    chunk_bytes: int = SHARD_CHUNK_BYTES

    def __post_init__(self) -> None:
        place = self.place()
        head = read_head(place)
        self.attempt = 1 + max((name.attempt for name in place.names()), default=-1)
        line = () if head is None else head.line
        mine = Head(self.generation, self.token, line, time.time())
        compare_and_swap_head(place, lambda _: mine)
        self.committers = [self.committer(rank) for rank in range(self.size)]

    def committer(self, rank: int) -> ShardCommitter:
        """A rank's, as after a restart of its writer."""
        gang = ShardGroup(
            self.token, self.attempt, rank, self.size, (("dp", self.size),),
            self.timeout_s, self.takeover_s,
        )  # fmt: skip
        return ShardCommitter(
            self.place(), self.generation, RetentionPolicy(self.keep), writer=self.token,
            claimed=True, chunk_bytes=self.chunk_bytes, gang=gang,
        )  # fmt: skip

    def rows(self, rank: int) -> tuple[int, int]:
        """Which rows a rank holds."""
        return rank * ROWS // self.size, (rank + 1) * ROWS // self.size

    def request(self, rank: int, step: int, **options: Any) -> SaveRequest:
        """What this rank saves."""
        begin, end = self.rows(rank)
        data = memoryview(self.state(step))[begin * COLUMNS : end * COLUMNS]
        box = TensorBox((begin, 0), (end - begin, COLUMNS))
        layout = ShardLayout((WEIGHTS,), (PlacedBox(0, box, 0),))
        files = {"objects.pt": memoryview(b"objects"), "tensors-00000.bin": data}
        return SaveRequest(
            step, self.size, time.monotonic(), files, layout=layout.encode(), **options
        )

    def save(
        self, step: int, ranks: Iterable[int] | None = None, **changed: SaveRequest
    ) -> list[CommitResult | CheckpointError]:
        """Let the ranks save at once; returns how it ended for each."""

        def one(rank: int) -> Any:
            try:
                asked = changed.get(f"rank{rank}", self.request(rank, step))
                return self.committers[rank].commit(asked)
            except CheckpointError as error:
                return error

        chosen = list(range(self.size) if ranks is None else ranks)
        with ThreadPoolExecutor(len(chosen)) as pool:
            return list(pool.map(one, chosen))
