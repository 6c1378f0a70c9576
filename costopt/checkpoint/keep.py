"""Which checkpoints are kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from costopt.checkpoint.name import CheckpointName

LOSS = "loss"
"""The label in which a training loop tells the loss of its last step."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """The ``last`` newest with the deltas among them, every one at a multiple of ``every_steps``,
    the ``best`` with the lowest ``metric``, and all that are tagged.

    ``every_steps`` None keeps no milestones, ``best`` 0 none for being good. ``metric`` is a
    label of checkpoints; one that has no number there is never among the best. A delta is not one
    of the ``last``, for it is lost together with its base.
    """

    last: int = 3
    every_steps: int | None = None
    best: int = 0
    metric: str = LOSS

    def __post_init__(self) -> None:
        if self.last < 1:
            raise ValueError(f"keep={self.last}: at least one checkpoint must be kept")
        if self.every_steps is not None and self.every_steps < 1:
            raise ValueError(f"every_steps={self.every_steps}: must be at least 1")
        if self.best < 0:
            raise ValueError(f"best={self.best}: must not be negative")

    def retained(
        self,
        line: Sequence[CheckpointName],
        tagged: Collection[CheckpointName],
        deltas: Collection[CheckpointName],
        number: Callable[[CheckpointName, str], float | None],
    ) -> tuple[CheckpointName, ...]:
        """Those of ``line`` (the newest first) that stay in it, in the same order.

        ``number`` is asked for the number in a label of a checkpoint, if ``best`` are to be kept.
        """
        best = self._best(line, number) if self.best else ()
        last = self._last(line, deltas)
        return tuple(
            name
            for place, name in enumerate(line)
            if place < last or name in tagged or name in best or self._is_milestone(name)
        )

    def _last(self, line: Sequence[CheckpointName], deltas: Collection[CheckpointName]) -> int:
        """How many the ``last`` are with the deltas that come before the oldest of them."""
        whole = [place for place, name in enumerate(line, start=1) if name not in deltas]
        return whole[self.last - 1] if len(whole) >= self.last else len(line)

    def _best(
        self,
        line: Sequence[CheckpointName],
        number: Callable[[CheckpointName, str], float | None],
    ) -> list[CheckpointName]:
        """Of equals the newest."""
        found = {name: number(name, self.metric) for name in line}
        told = {name: value for name, value in found.items() if value is not None}
        return sorted(told, key=lambda name: told[name])[: self.best]

    def _is_milestone(self, name: CheckpointName) -> bool:
        return self.every_steps is not None and name.step % self.every_steps == 0
