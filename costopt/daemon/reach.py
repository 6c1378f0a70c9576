"""What the API can get at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from costopt.daemon.auth import Caller
from costopt.daemon.reader import Reader
from costopt.daemon.service import Service
from costopt.domain.ports import Clock
from costopt.domain.token import Tokens


@dataclass(frozen=True, slots=True)
class Reach:
    """``folders`` are those that jobs from elsewhere may use on this machine; relative paths of
    theirs count from the first. ``clock`` is the wall's."""

    service: Service
    tokens: Tokens
    clock: Clock
    folders: tuple[Path, ...]

    def reader(self, caller: Caller) -> Reader:
        """What the caller may see."""
        return Reader(self.service, caller.tenant)

    def workdir(self, named: str) -> str:
        """The folder that a job names, else the first."""
        return named or str(self.folders[0])
