"""When steps of trainers ended, told through files, and the pauses that are read off them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import TextIO

LIMIT_S = 60.0
LOOK_S = 0.05
"""The files hold the times: to look more often would only take time from the trainers."""

Figure = tuple[str, float, str]


class NotRecoveredError(Exception):
    """No step ended in time."""


class StepFiles:
    """A file of each trainer below ``folder``, named by its pid: a line for each step's end, with
    the monotonic time, which all processes of a machine share, and how many trained."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def trainers(self) -> frozenset[Path]:
        """The files of all trainers that have begun."""
        return frozenset(path for path in self.folder.rglob("*") if path.is_file())

    def ends(self, trainer: Path) -> list[tuple[float, int]]:
        """When each step of a trainer ended, and how many trained then."""
        lines = trainer.read_text().splitlines()
        return [(float(at), int(size)) for at, size in map(str.split, lines)]

    def first(
        self, after: float, *, size: int | None = None, besides: frozenset[Path] = frozenset()
    ) -> float:
        """When the first step after ``after`` ended, in a gang of that size, of a trainer that is
        none of those ``besides``. Raises NotRecoveredError LIMIT_S after it."""
        while time.monotonic() < after + LIMIT_S:
            found = [
                at
                for trainer in self.trainers() - besides
                for at, trained in self.ends(trainer)
                if at > after and size in (None, trained)
            ]
            if found:
                return min(found)
            time.sleep(LOOK_S)
        raise NotRecoveredError


class Pauses:
    """Seconds after each kind of event, over some trials, of one way to train."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._seconds: dict[str, list[float]] = {}
        self._failed: dict[str, int] = {}

    def note(self, event: str, seconds: float) -> None:
        """What one trial took."""
        self._seconds.setdefault(event, []).append(seconds)

    def measure(
        self,
        event: str,
        steps: StepFiles,
        after: float,
        *,
        size: int | None = None,
        besides: frozenset[Path] = frozenset(),
    ) -> None:
        """Note how long after the event the first such step ended. Raises NotRecoveredError."""
        try:
            self.note(event, steps.first(after, size=size, besides=besides) - after)
        except NotRecoveredError:
            self._failed[event] = self._failed.get(event, 0) + 1
            raise

    def figures(self) -> Iterator[Figure]:
        """Median and worst of those that recovered, and how many did not."""
        for event, seconds in self._seconds.items():
            yield f"{self._who}: {event}", median(seconds), "s"
            if len(seconds) > 1:
                yield f"{self._who}: {event}, worst of {len(seconds)}", max(seconds), "s"
        for event, times in self._failed.items():
            yield f"{self._who}: {event}, did not recover within {LIMIT_S:g} s", times, "times"


def own_file(folder: Path) -> TextIO:
    """Where this process records its steps."""
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / str(os.getpid())).open("a", buffering=1)


def tell(file: TextIO, size: int) -> None:
    """A step has ended."""
    file.write(f"{time.monotonic()} {size}\n")
