"""Which checkpoints are kept."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from costopt.checkpoint.name import CheckpointName


@dataclass(frozen=True, slots=True)
class KeepRule:
    """The ``last`` newest, every one at a multiple of ``every_steps``, and all that are tagged.

    ``every_steps`` None keeps no milestones.
    """

    last: int = 3
    every_steps: int | None = None

    def __post_init__(self) -> None:
        if self.last < 1:
            raise ValueError(f"keep={self.last}: at least one checkpoint must be kept")
        if self.every_steps is not None and self.every_steps < 1:
            raise ValueError(f"every_steps={self.every_steps}: must be at least 1")

    def kept(
        self, line: Sequence[CheckpointName], tagged: Collection[CheckpointName]
    ) -> tuple[CheckpointName, ...]:
        """Those of ``line`` (the newest first) that stay in it, in the same order."""
        return tuple(
            name
            for number, name in enumerate(line)
            if number < self.last or name in tagged or self._is_milestone(name)
        )

    def _is_milestone(self, name: CheckpointName) -> bool:
        return self.every_steps is not None and name.step % self.every_steps == 0
