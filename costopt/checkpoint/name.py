"""What a checkpoint is called: its directory, which is written once and never used again."""

from __future__ import annotations

import re
from dataclasses import dataclass

NAME = re.compile(r"step-(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, order=True)
class CheckpointName:
    """Later is greater. A generation outranks a step: after going back the new line counts."""

    generation: int
    step: int
    attempt: int

    def __str__(self) -> str:
        return f"step-{self.step:09d}.{self.generation}.{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> CheckpointName | None:
        """The inverse, or None where ``text`` is no name of a checkpoint."""
        match = NAME.fullmatch(text)
        return None if match is None else cls(int(match[2]), int(match[1]), int(match[3]))
