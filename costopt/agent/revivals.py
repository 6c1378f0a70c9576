"""Trainers that are started again in their gang: how often, and what stands ready for it."""

from __future__ import annotations

import os
import time
from collections import deque

from costopt.agent.gang import Gang
from costopt.agent.settings import AgentSettings
from costopt.agent.standby import Standby
from costopt.agent.trainer import Trainer

MOST = 3
WITHIN_S = 60.0
"""A command that fails more often than this fails by itself."""


class Revivals:
    """Of one trainer. ``close`` ends what stands ready."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._times: deque[float] = deque(maxlen=MOST)
        self._standby: Standby | None = None

    def get_ready(self, gang: Gang) -> None:
        """Have a warm process wait, where the settings ask for one and the node can start it."""
        if self._settings.standby and self._standby is None:
            try:
                self._standby = Standby(dict(gang.env), os.getpid())
            except OSError:
                return

    def revive(self, trainer: Trainer) -> bool:
        """Start again what failed; False where it failed too often of late, or cannot start."""
        now = time.monotonic()
        if len(self._times) == MOST and now - self._times[0] < WITHIN_S:
            return False
        self._times.append(now)
        try:
            if trainer.revive(self._standby):
                self._standby = None
        except OSError:
            return False
        return True

    def close(self) -> None:
        """No more revivals."""
        if self._standby is not None:
            self._standby.close()
            self._standby = None
