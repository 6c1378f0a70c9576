"""Slurm's commands, run here or over ssh, each within a time limit, and what their errors mean.

A client that does not reach slurmctld retries for minutes, so nothing is run without a limit. What
came of a command that was cut off is not known.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from costopt.domain.errors import (
    BadRequestError,
    ForbiddenError,
    NoCapacityError,
    ProviderError,
    ProviderUnavailableError,
    QuotaExceededError,
    ThrottledError,
)

PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR")
"""What Slurm's commands need of our environment. sbatch passes its own on to the job: credentials
of the controller must not be in it."""
SEARCH_PATH = "/usr/local/bin:/usr/bin:/opt/slurm/bin:/usr/local/slurm/bin"
"""Searched after the PATH: Slurm starts its own programs, such as ResumeProgram, without one."""
EPOCH = "SLURM_TIME_FORMAT"
SSH_FAILED = 255
CONNECT_TIMEOUT_S = 10
PERSIST_S = 600
MAX_SAID = 300

MEANINGS: tuple[tuple[str, type[ProviderError]], ...] = (
    (
        r"unable to contact slurm controller|socket timed out|connection (refused|timed out|reset)"
        r"|timed out on send/recv|zero bytes were transmitted|transport endpoint|munge"
        r"|authentication|credential|controller .*(down|not respond)|protocol|in standby mode"
        r"|could not load|unable to establish",
        ProviderUnavailableError,
    ),
    (r"permission denied|access denied|not permitted|invalid account|invalid qos", ForbiddenError),
    (
        r"policy|limit \(|submit limit|maximum number of jobs|AssocMax|AssocGrp|QOSMax|QOSGrp",
        QuotaExceededError,
    ),
    (r"temporarily un(able|available)|try again|resource temporarily", ThrottledError),
    (
        r"partition not available|node\(s\) not available|reserved for|nodes required",
        NoCapacityError,
    ),
)
"""Parts of what the commands print (slurm_errno.c), and what they mean. Anything else that sbatch
or scontrol refuse can never succeed as it stands."""


class CommandRunner:
    """Runs a command on the login node. Safe to share between threads.

    ``host`` None: this machine. ``slurm_conf`` and ``programs`` are its configuration and the
    folder of its commands, None where they are in their usual places.
    """

    def __init__(
        self,
        host: str | None = None,
        slurm_conf: str | None = None,
        programs: str | None = None,
        timeout_s: float = 20.0,
    ) -> None:
        self.host = host
        self._programs = programs
        self._timeout_s = timeout_s
        self._variables = {EPOCH: "%s", "LC_ALL": "C"}
        if slurm_conf is not None:
            self._variables["SLURM_CONF"] = slurm_conf

    @property
    def where(self) -> str:
        """Return the machine, for messages."""
        return "this machine" if self.host is None else self.host

    def slurm(self, program: str, *arguments: str, stdin: str = "") -> str:
        """Return what a command of Slurm prints. Raise ProviderError."""
        path = program if self._programs is None else f"{self._programs}/{program}"
        return self.run(path, *arguments, stdin=stdin)

    def run(self, *command: str, stdin: str = "") -> str:
        """Return what a command prints. Raise ProviderError; its class says what is known."""
        program = Path(command[0]).name
        try:
            done = subprocess.run(  # noqa: S603
                self._command(command),
                input=stdin,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._timeout_s,
                env=self._environment(),
                check=False,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            raise ProviderUnavailableError(
                f"{program} on {self.where} did not answer within {self._timeout_s:g} s",
                hint="see whether slurmctld runs: scontrol ping",
            ) from None
        except OSError as error:
            raise _missing(program, self.where, error.strerror or str(error)) from error
        if done.returncode != 0:
            raise self._error(program, done.returncode, done.stderr or done.stdout)
        return done.stdout

    def _command(self, command: tuple[str, ...]) -> list[str]:
        if self.host is None:
            return list(command)
        Path.home().joinpath(".ssh").mkdir(mode=0o700, exist_ok=True)
        variables = (f"{name}={value}" for name, value in self._variables.items())
        return [
            "ssh",
            *("-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_TIMEOUT_S}"),
            *("-o", "ControlMaster=auto", "-o", f"ControlPersist={PERSIST_S}"),
            *("-o", "ControlPath=~/.ssh/costopt-%C", self.host, "--"),
            shlex.join(("env", *variables, *command)),
        ]

    def _environment(self) -> Mapping[str, str]:
        ours = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        path = os.pathsep.join(filter(None, (ours.get("PATH"), SEARCH_PATH)))
        return {**ours, "PATH": path, **self._variables}

    def _error(self, program: str, code: int, said: str) -> ProviderError:
        said = " ".join(said.split())[:MAX_SAID]
        if self.host is not None and code == SSH_FAILED:
            denied = "permission denied" in said.lower()
            kind = ForbiddenError if denied else ProviderUnavailableError
            return kind(
                f"ssh {self.host}: {said or 'no connection'}",
                hint=f"`ssh -o BatchMode=yes {self.host} true` has to work without a password",
            )
        if code in (126, 127):
            return _missing(program, self.where, said)
        return error_of(f"{program} on {self.where}", said)


def error_of(about: str, said: str) -> ProviderError:
    """Return the error that a command's message means."""
    for pattern, kind in MEANINGS:
        if re.search(pattern, said, re.IGNORECASE):
            return kind(f"{about}: {said}")
    return BadRequestError(f"{about}: {said or 'failed without a message'}")


def _missing(program: str, where: str, said: str) -> BadRequestError:
    return BadRequestError(
        f"{program} cannot be run on {where}: {said}",
        hint="run costopt on a login node, or name one with host: and its commands with bin:",
        code="no_command",
    )
