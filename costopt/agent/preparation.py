"""What a node does before the job's command runs: secrets, the image, and the setup commands.

It happens once per agent, in a thread. The setup commands leave a mark under their digest, in the
agent's folder or as an image, so that a restart does not repeat them. Values of secrets are in this
process and in memory-backed files that no other user can read; nothing else of ours holds them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from costopt.agent import exit_cleanup
from costopt.agent.containers import (
    PACKAGE,
    Container,
    ContainerError,
    ContainerRuntime,
    write_login,
)
from costopt.agent.launch_spec import (
    HERE,
    Interpreter,
    image_interpreter,
    search_path,
    with_parent_watchdog,
)
from costopt.agent.node_role import RoleError
from costopt.agent.redaction import RedactedLog, Redactor
from costopt.agent.secret_values import SecretError, SecretReader
from costopt.domain.secret import IMAGE_LOGIN
from costopt.protocol.messages import Gang

MEMORY = Path("/dev/shm")  # noqa: S108
TAIL_BYTES = 8192
MAX_WORDS = 300
CLEANUP_TIMEOUT_S = 30.0
GUARD = str(Path(exit_cleanup.__file__).resolve())
NODE_FOLDER_VARIABLE = "COSTOPT_NODE_FOLDER"
"""The mark by which a simulated node's processes are killed; the guard has to outlive them."""


class SetupError(Exception):
    """The node cannot run the command; the message says why, and holds no secret."""


@dataclass(frozen=True, slots=True)
class TrainerPlace:
    """Where and with what the command runs. ``variables`` are the secrets, which ``redactor``
    hides."""

    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    redactor: Redactor = field(default_factory=Redactor)
    runtime: ContainerRuntime | None = None
    image: str = ""
    mounts: tuple[str, ...] = ()

    def container(
        self, gang: Gang, folder: Path, data_dir: Path | None, cache_dir: Path | None
    ) -> Container | None:
        """Return a new container that sees the folders of this machine that the command uses,
        made if they are missing; None on the node itself. Raise OSError.
        """
        if self.runtime is None:
            return None
        caches = [to for _, to, _, _ in gang.cache if Path(to).is_absolute()]
        cache = None if cache_dir is None else cache_dir.parent  # links in it lead there
        uris = (gang.checkpoint_uri, gang.data_uri)
        named = [unquote(uri.removeprefix("file://")) for uri in uris if uri]
        named += [str(each) for each in (folder, data_dir, cache, *caches) if each is not None]
        local = [each for each in named if "://" not in each]
        for each in local:
            Path(each).mkdir(parents=True, exist_ok=True)
        return Container(self.runtime, self.image, (*self.mounts, *local))

    def interpreter(self, command: tuple[str, ...]) -> Interpreter:
        """Return the Python of the job's scripts."""
        if self.runtime is None:
            return HERE
        return image_interpreter(command, f"{PACKAGE}/costopt/agent/exit_with_parent.py")


NODE_ITSELF = TrainerPlace()


class NodePreparation:
    """Prepares the node for a gang's job. Call ``close`` at the end of the agent.

    ``place`` is None until all is done; ``message`` is the progress, ``failure`` why it failed.
    """

    def __init__(
        self, gang: Gang, workdir: str, folder: Path, reader: SecretReader, redactor: Redactor
    ) -> None:
        self.gang = gang
        self.message = "preparing the node"
        self.failure = ""
        self.place: TrainerPlace | None = None
        self.log_path = folder / f"trainer-{gang.generation:06d}.log"
        self._workdir = workdir
        self._folder = folder
        self._private = private_folder(folder)
        self._reader = reader
        self._redactor = redactor
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._runtime: ContainerRuntime | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="setup", daemon=True)
        self._thread.start()

    def suits(self, gang: Gang) -> bool:
        """Whether a newer gang needs the same."""
        old = self.gang
        return (gang.image, gang.setup, gang.secrets) == (old.image, old.setup, old.secrets)

    def close(self) -> None:
        """End what still runs, and remove containers and secrets."""
        self._closed = True
        process = self._process
        if process is not None and process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        self._thread.join(CLEANUP_TIMEOUT_S)
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._guard.wait(CLEANUP_TIMEOUT_S)

    def _run(self) -> None:
        try:
            self.place = self._prepare()
        except (SetupError, SecretError, ContainerError, RoleError) as error:
            self.failure = self._redactor.text(str(error))
        except OSError as error:
            self.failure = self._redactor.text(f"the node cannot be prepared: {error}")

    def _prepare(self) -> TrainerPlace:
        gang, container = self.gang, self.gang.image is not None
        if container:
            self._runtime = ContainerRuntime.find(agent_name(self._folder))
            self._runtime.remove_all()
        shutil.rmtree(self._private, ignore_errors=True)
        self._start_guard()
        self.message = "reading secrets"
        values = self._reader.read(gang.secrets)
        self._redactor.hide(values.values())
        login = values.pop(IMAGE_LOGIN, None)
        if login is not None:
            self._redactor.hide([login.partition(":")[2]])
        variables, mounts = self._write_files(values)
        if self._runtime is None or gang.image is None:
            if gang.setup:
                self._set_up_node(variables)
            return TrainerPlace(variables, self._redactor)
        image = self._fetch_image(self._runtime, gang.image, login)
        if gang.setup:
            image = self._set_up_image(self._runtime, image, variables)
        return TrainerPlace(variables, self._redactor, self._runtime, image, mounts)

    def _write_files(self, values: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
        """Return the variables, and the folder of secrets that are files."""
        files = {variable for variable, _, _, as_file in self.gang.secrets if as_file}
        variables = {
            variable: str(self._write(variable, value)) if variable in files else value
            for variable, value in values.items()
        }
        return variables, (str(self._private),) if files else ()

    def _write(self, name: str, text: str) -> Path:
        self._private.mkdir(mode=0o700, exist_ok=True)
        path = self._private / name
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        return path

    def _fetch_image(self, runtime: ContainerRuntime, image: str, given: str | None) -> str:
        """Return the image's id once this machine has it; ``given`` is the registry's login.

        Raise SetupError with what was said.
        """
        known = runtime.image_id(image)
        if known is not None:
            return known
        self.message = f"pulling image {image}"
        login = write_login(image, self._reader.source, self._private / "login", given)
        code = self._execute(runtime.pull_command(image, login), {})
        if login is not None:
            shutil.rmtree(login, ignore_errors=True)
        known = runtime.image_id(image) if code == 0 else None
        if known is None:
            raise SetupError(f"image {image} cannot be pulled: {self._last_line()}")
        return known

    def _set_up_node(self, variables: Mapping[str, str]) -> None:
        mark = self._folder / f"setup-{self._digest('')}"
        if mark.exists():
            return
        self.message = "running setup"
        script = _script(self.gang.setup)
        code = self._execute(
            ("/bin/sh", "-c", script), {"PATH": search_path(), **dict(self.gang.env), **variables}
        )
        self._raise_for(code)
        mark.touch()

    def _set_up_image(
        self, runtime: ContainerRuntime, image: str, variables: Mapping[str, str]
    ) -> str:
        """Return the image that the commands made of ``image``.

        An image stores the variables of its container, so these come from a file.
        """
        prepared = f"localhost/costopt-setup:{self._digest(image)}"
        if runtime.image_id(prepared) is not None:
            return prepared
        self.message = "running setup"
        known = dict(self.gang.env) | dict(variables)
        exports = [f"export {name}={shlex.quote(text)}" for name, text in known.items()]
        values = self._write("setup.sh", "\n".join(exports))
        label = f"setup-{self._digest(image)}"
        command = runtime.run_command(
            image,
            ("/bin/sh", "-c", f". {shlex.quote(str(values))}\n{_script(self.gang.setup)}"),
            (),
            workdir=self._workdir,
            mounts=(str(self._private),),
            label=label,
        )
        try:
            self._raise_for(self._execute(command, {}))
            runtime.commit(label, prepared)
        finally:
            runtime.remove(label)
            values.unlink()
        return prepared

    def _raise_for(self, code: int) -> None:
        if code:
            raise SetupError(f"setup ended with {code}: {self._last_line()}")

    def _digest(self, image: str) -> str:
        parts = json.dumps([image, self.gang.setup, self._workdir])
        return hashlib.sha256(parts.encode()).hexdigest()[:32]

    def _execute(self, command: Iterable[str], variables: Mapping[str, str]) -> int:
        """Return the exit code of a command whose output is in the log, redacted."""
        if self._closed:
            raise SetupError("the agent leaves")
        log = RedactedLog(self._redactor, self.log_path)
        with log.target:
            self._process = subprocess.Popen(  # noqa: S603
                (*with_parent_watchdog(os.getpid()), *command),
                cwd=self._workdir,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=log.target,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        code = self._process.wait()
        log.drain()
        return code

    def _last_line(self) -> str:
        with suppress(OSError), self.log_path.open("rb") as log:
            log.seek(max(0, self.log_path.stat().st_size - TAIL_BYTES))
            lines = log.read().decode(errors="replace").split("\n")
            return next((line.strip() for line in reversed(lines) if line.strip()), "")[:MAX_WORDS]
        return ""

    def _start_guard(self) -> None:
        removal = "" if self._runtime is None else self._runtime.removal_script()
        kept = {name: text for name, text in os.environ.items() if name != NODE_FOLDER_VARIABLE}
        self._guard = subprocess.Popen(  # noqa: S603
            [sys.executable, "-SI", GUARD, str(self._private), removal],
            env=kept,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )


def private_folder(folder: Path) -> Path:
    """Return the memory-backed folder of an agent's secrets; on disk where the machine has none."""
    if not MEMORY.is_dir():
        return folder / "private"
    return MEMORY / f"costopt-{agent_name(folder)}"


def agent_name(folder: Path) -> str:
    """Return a name of the agent by its folder, the same after a restart."""
    return hashlib.sha256(str(folder).encode()).hexdigest()[:16]


def _script(commands: Iterable[str]) -> str:
    """One shell runs all; each is printed before it runs, and the first that fails ends it."""
    lines = (f"echo {shlex.quote('+ ' + command)}\n{command}" for command in commands)
    return "set -e\n" + "\n".join(lines)
