"""How saves that were begun have ended."""

from __future__ import annotations

from dataclasses import dataclass

from costopt.domain.errors import CheckpointError
from costopt.protocol.trainer_files import SavedCheckpoint


@dataclass(frozen=True, slots=True)
class FailedSave:
    """A save that did not become a checkpoint; what was saved before is still there."""

    step: int
    error: CheckpointError


SaveOutcome = SavedCheckpoint | FailedSave
