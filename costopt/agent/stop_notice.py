"""What the trainer reads when it must save and stop: a small file, there from the notice on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from costopt.store.durable import replace_nondurable


@dataclass(frozen=True, slots=True)
class StopNotice:
    """``deadline_at`` is when the node dies, wall time in POSIX seconds; None where nobody said.

    ``time`` is the same as the provider told it, by its own clock. ``upload_bytes_per_s`` is the
    speed at which this node last made a checkpoint durable, None while it has made none.
    """

    reason: str
    time: str | None = None
    deadline_at: float | None = None
    upload_bytes_per_s: float | None = None
    action: str = "stop"

    def write(self, path: Path) -> None:
        """Replace the file. Raises OSError."""
        replace_nondurable(path, json.dumps(asdict(self)).encode())

    @classmethod
    def read(cls, path: Path) -> StopNotice | None:
        """The notice, or None where there is none; one that cannot be understood is a notice."""
        try:
            return cls(**json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError):
            return cls("a notice that cannot be read")

    def allows(self, size_bytes: int, now: float, *, spare_s: float = 0.0) -> bool | None:
        """Whether an upload that begins ``now`` (wall) ends ``spare_s`` before the node dies.

        Feasible is size / bandwidth < what is left of the notice. None where either is unknown.
        """
        if self.deadline_at is None or not self.upload_bytes_per_s:
            return None
        return now + size_bytes / self.upload_bytes_per_s < self.deadline_at - spare_s
