"""Passes on what a trainer tells of its checkpoints, each once."""

from __future__ import annotations

from costopt.protocol.mailbox import Mailbox
from costopt.protocol.trainer_files import TrainerStatus


class CheckpointRelay:
    """Remembers what was told, over all generations of one agent."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._told: set[str] = set()
        self._refused: set[str] = set()

    def relay(self, status: TrainerStatus) -> None:
        """Tell the controller of checkpoints that are new. Raises StoreError."""
        for checkpoint in status.checkpoints:
            if checkpoint.name not in self._told:
                self._mailbox.post_checkpoint(checkpoint)
                self._told.add(checkpoint.name)
        for refused in status.refused:
            if refused.name not in self._refused:
                self._mailbox.post_rejected_checkpoint(refused)
                self._refused.add(refused.name)
