"""The folder under which a test's controller starts its nodes, which are processes here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from costopt_sim.process_host import FOLDER_VARIABLE

ROOT = Path(__file__).parents[2]


@dataclass
class NodeFolder(ABC):
    """Finds the nodes' processes by the folder that their environment names."""

    folder: Path

    @abstractmethod
    def start(self, *more: str) -> subprocess.Popen[str]:
        """Start the controller, with ``more`` options."""

    @contextmanager
    def controlled(self, *more: str, clears: bool = True) -> Iterator[subprocess.Popen[str]]:
        """A running controller, killed at the end; with ``clears`` its nodes are too.

        Its output is printed: pytest shows it where the test failed.
        """
        process = self.start(*more)
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            output = "".join(filter(None, process.communicate()))
            sys.stdout.write(f"controller {process.pid} ended with {process.returncode}\n{output}")
            if clears:
                self.clear()

    def processes(self) -> list[int]:
        """Processes of the nodes under this folder."""
        return processes_under(self.folder)

    def clear(self) -> None:
        """Kill the nodes that are left: a test that failed leaves none running."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def processes_under(folder: Path) -> list[int]:
    """Processes of the nodes whose folders lie in this one, or are it."""
    mark = f"{FOLDER_VARIABLE}={folder}".encode()
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in environ.read_bytes():
                found.append(int(environ.parent.name))
    return found


def variables(**more: str) -> dict[str, str]:
    """The environment in which a user calls costopt from this checkout."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "providers")])
    return {**os.environ, "PYTHONPATH": path, "NO_COLOR": "1", **more}
