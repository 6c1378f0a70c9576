"""Restarts of failed trainers within their gang: how often, and the standby that speeds them up."""

from __future__ import annotations

import os
import sys
import time
from collections import deque

from costopt.agent.settings import AgentSettings
from costopt.agent.trainer import Trainer, WarmStandby
from costopt.protocol.messages import Gang

MAX_RESTARTS = 3
RESTART_WINDOW_S = 60.0
"""A trainer is restarted a limited number of times in it: beyond that the command is at fault."""
MAX_LOST_STANDBYS = 5
STANDBY_RETRY_S = 1.0
"""Delay after the first lost standby; it doubles with each further one."""


class TrainerRestarts:
    """The restarts of one trainer. Call ``close`` at the end."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._times: deque[float] = deque(maxlen=MAX_RESTARTS)
        self._standby: WarmStandby | None = None
        self._standbys_lost = 0
        self._standby_from = 0.0

    def prepare_standby(self, gang: Gang) -> None:
        """Keep a warm process waiting if the settings ask for one and the node can start it.

        One that dies is replaced after a backoff. If several die in a row and none of them replaced
        a trainer, no more are started.
        """
        if self._standby is not None and not self._standby.is_alive():
            self._lose_standby("died")
        may_start = self._settings.standby and self._standbys_lost < MAX_LOST_STANDBYS
        if may_start and self._standby is None and time.monotonic() >= self._standby_from:
            try:
                self._standby = WarmStandby(dict(gang.env), os.getpid())
            except OSError as error:
                self._lose_standby(f"could not be started: {error}")

    def restart(self, trainer: Trainer) -> bool:
        """Restart what failed; return False if it failed too often recently, or cannot start."""
        now = time.monotonic()
        if len(self._times) == MAX_RESTARTS and now - self._times[0] < RESTART_WINDOW_S:
            return False
        self._times.append(now)
        try:
            if trainer.restart(self._standby):
                self._standby, self._standbys_lost = None, 0
        except OSError:
            return False
        return True

    def close(self) -> None:
        """End the standby."""
        if self._standby is not None:
            self._standby.close()
            self._standby = None

    def _lose_standby(self, why: str) -> None:
        self.close()
        pause_s = STANDBY_RETRY_S * 2**self._standbys_lost
        self._standbys_lost += 1
        self._standby_from = time.monotonic() + pause_s
        more = self._standbys_lost < MAX_LOST_STANDBYS
        then = f"the next one starts in {pause_s:g} s" if more else "no other will be started"
        print(f"a standby {why}; {then}", file=sys.stderr, flush=True)  # noqa: T201
