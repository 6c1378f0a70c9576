"""Letters that agents write once and never again, as the controller reads them: each once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

MAX_BATCH = 500
"""So many of one kind are read at a time: a job that writes thousands holds up no other's tick, and
one that saved every ten minutes while no controller ran for three days is read at once."""

T = TypeVar("T")

log = logging.getLogger("costopt.agent.letters")


class MessageReader:
    """What was read of one job's letters, by folder and key.

    Of those that are new the last by name come first, so that the newest is known at once, and the
    others when it is asked again.
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self._read: dict[str, dict[str, Any]] = {}
        self._told = False

    def new_messages(self, folder: str, keys: Sequence[str], read: Callable[[str], T]) -> list[T]:
        """Those at ``keys``, all in ``folder``, that were read by now, in the same order."""
        before = self._read.get(folder, {})
        known = {key: before[key] for key in keys if key in before}
        new = [key for key in keys if key not in before]
        known.update({key: read(key) for key in new[-MAX_BATCH:]})
        self._read[folder] = known
        self._tell(folder, len(new) - MAX_BATCH)
        return [known[key] for key in keys if key in known]

    def _tell(self, folder: str, unread: int) -> None:
        """Once."""
        if unread > 0 and not self._told:
            self._told = True
            log.warning(
                "job %s has %d unread letters in %s; the next ticks read them, %d at a time",
                self._job, unread, folder, MAX_BATCH,
            )  # fmt: skip
