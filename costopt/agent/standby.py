"""A process that has imported torch already and takes a failed trainer's place at once."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from costopt.agent import warm
from costopt.agent.launcher import ProcessSpec, with_parent_watchdog

MODULES = "torch,torch._dynamo,torch.distributed,costopt.train.attach"
"""Optimizers import torch._dynamo when they are made."""
SCRIPT = str(Path(warm.__file__).resolve())


class WarmStandby:
    """One process that waits. It dies with this one, and on ``close``."""

    def __init__(
        self, variables: Mapping[str, str], agent_pid: int, modules: str = MODULES
    ) -> None:
        """Raises OSError. ``variables`` are those that count when libraries are imported."""
        self._process = subprocess.Popen(  # noqa: S603
            [*with_parent_watchdog(agent_pid), sys.executable, "-u", SCRIPT, modules],
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )

    def is_alive(self) -> bool:
        """Whether it waits, or is on its way to."""
        return self._process.poll() is None

    def is_warm(self) -> bool:
        """Whether it has imported everything, and lives."""
        if not self.is_alive():
            return False
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], 0)
        return bool(readable)

    def activate(
        self, spec: ProcessSpec, variables: Mapping[str, str], *, workdir: str, log_path: Path
    ) -> subprocess.Popen[bytes] | None:
        """The process, which runs the script from here on; None where it cannot be one."""
        if not spec.script or not self.is_warm():
            return None
        letter = {
            "argv": list(spec.script),
            "env": {**dict(spec.variables), **variables},
            "cwd": workdir,
            "log": str(log_path),
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(letter).encode() + b"\n")
            self._process.stdin.close()
        except OSError:
            return None
        self._process.stdout.close()
        return self._process

    def close(self) -> None:
        """End it."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
