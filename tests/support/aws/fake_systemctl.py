"""systemctl as far as a node's start needs it, for machines where systemd does not run.

Called as a program by the name systemctl: a started service is a process in a session of its own,
whose id is in <unit>.pid beside the unit; every call is a line of "calls" there.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path


def install(folder: Path) -> None:
    """Put it as a program into this folder."""
    program = folder / "systemctl"
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{__file__}' \"$@\"\n")
    program.chmod(0o755)


def main(verb: str, *names: str) -> None:
    """Carry out one call, to its end even if the process group that made it is killed: systemd
    carries calls out, not systemctl."""
    with suppress(PermissionError):  # it leads a session already
        os.setsid()
    folder = Path(os.environ["COSTOPT_UNIT_DIR"])
    with (folder / "calls").open("a") as calls:
        calls.write(" ".join([verb, *names]) + "\n")
    if verb == "poweroff":
        stop(folder / "costopt-agent.pid")
    for name in names:
        path = folder / name
        if verb in ("restart", "stop"):
            stop(path.with_suffix(".pid"))
        if verb == "restart" or (verb == "start" and not path.with_suffix(".pid").exists()):
            begin(path)


def begin(unit: Path) -> None:
    """Run what ExecStart says, with the unit's environment."""
    variables: dict[str, str] = {}
    command: list[str] = []
    for line in unit.read_text().splitlines():
        name, _, value = line.partition("=")
        words = [w.replace("%%", "%").replace("$$", "$") for w in shlex.split(value)]
        if name == "Environment":
            variables |= dict(word.split("=", 1) for word in words)
        elif name == "ExecStart":
            command = words
        elif name == "OnActiveSec":
            service = unit.with_suffix(".service").read_text()
            then = next(x for x in service.splitlines() if x.startswith("ExecStart="))
            command = ["sh", "-c", f"sleep {value.removesuffix('s')}; {then[len('ExecStart=') :]}"]
    with unit.with_suffix(".log").open("ab") as log:
        process = subprocess.Popen(
            command,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    unit.with_suffix(".pid").write_text(str(process.pid))


def stop(pid: Path) -> None:
    """End the process and what it started."""
    with suppress(FileNotFoundError, ProcessLookupError, ValueError):
        os.killpg(int(pid.read_text()), signal.SIGKILL)
    pid.unlink(missing_ok=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
