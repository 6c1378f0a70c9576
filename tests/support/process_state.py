"""Whether a process runs, how it is made to stand still, and one with many open files."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path


def is_running(pid: int) -> bool:
    """False for a zombie: nobody's child any more, it waits until init has seen it.

    Its first thread may have ended before others, which hold its files.
    """
    return any(_state(thread) not in "ZX" for thread in _threads(pid))


def pause(pid: int) -> None:
    """Stop a process, and wait until each of its threads has: some may run until then."""
    os.kill(pid, signal.SIGSTOP)
    while any(_state(thread) not in "TZ" for thread in _threads(pid)):
        time.sleep(0.001)


def _threads(pid: int) -> list[Path]:
    with suppress(FileNotFoundError, ProcessLookupError):
        return [thread / "stat" for thread in Path(f"/proc/{pid}/task").iterdir()]
    return []


def _state(stat: Path) -> str:
    try:
        return stat.read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


@contextmanager
def many_open_files() -> Iterator[None]:
    """Let new descriptors of this process be above 1,023, which select(2) does not take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    with ExitStack() as opened:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1024):
            opened.enter_context(Path(os.devnull).open())
        yield
