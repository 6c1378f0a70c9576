"""Runs simulated nodes as process groups: an agent in a session of its own.

Everything that a node runs is found and killed with it.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import RLock

from costopt.domain.errors import ProviderError
from costopt.domain.fleet import EndCause, Node
from costopt.domain.market import Interruption
from costopt_sim.fleet import LAUNCH_ABORTED
from costopt_sim.node_record import NodeRecord

NOTICE = "notice.json"
CONTROLLER_LOCK = "controller.lock"
MAX_UNREACHABLE_S = 600.0
AGENT_LOG = "agent.log"
TAIL_BYTES = 4096
MAX_WORDS = 300


class ProcessHost:
    """Implements NodeHost. ``store`` is the folder through which agents and controller talk,
    ``secrets`` that of the secrets which nodes may read. Agents save and leave
    ``max_unreachable_s`` after the last process with a host of this folder has ended."""

    def __init__(
        self,
        state_dir: Path,
        store: Path,
        *,
        launcher: str,
        processes: int,
        secrets: Path | None = None,
        max_unreachable_s: float = MAX_UNREACHABLE_S,
    ) -> None:
        self._state_dir = state_dir
        self._max_unreachable_s = max_unreachable_s
        self._held: int | None = None
        self._nodes_dir = state_dir / "nodes"
        self._store = store
        self._launcher = launcher
        self._processes = processes
        self._secrets = "none" if secrets is None else f"host:{secrets}"
        self._lock = RLock()
        self._records: dict[str, NodeRecord] = {}
        self._children: set[int] = set()

    def wait(self, node: Node) -> None:
        """Remember a node that has no agent yet. Raises ProviderError."""
        with self._lock:
            self._keep(NodeRecord(node))

    def start(self, node: Node) -> None:
        """Start the node's agent. Raises ProviderError."""
        folder = self.folder(node.node_id)
        with self._lock:
            try:
                self._hold_lock()
                folder.mkdir(parents=True, exist_ok=True)
                NodeRecord(node).write(folder)
                pid = self._spawn(node, folder)
                self._children.add(pid)
                self._keep(NodeRecord(node, pid, started_ticks(pid)))
            except (OSError, ProviderError) as error:
                kill_node(folder, None)
                self._records.pop(node.node_id, None)
                said = error.strerror if isinstance(error, OSError) else error
                raise ProviderError(
                    f"cannot start node {node.node_id} in {folder}: {said or error}",
                    hint="see that the folder can be written and processes can be started",
                ) from error

    def notice(self, interruption: Interruption) -> None:
        """Write the notice where the agent looks, as a cloud's metadata service would.

        Raises ProviderError.
        """
        notice = {
            "action": "terminate",
            "time": interruption.interrupts_at.isoformat(),
            "noticed_at": interruption.noticed_at.isoformat(),
        }
        folder = self.folder(interruption.node_id)
        with self._lock:
            self._keep(replace(self._records[interruption.node_id], interruption=interruption))
            temporary = folder / f".{NOTICE}.tmp"
            try:
                temporary.write_text(json.dumps(notice), encoding="utf-8")
                temporary.replace(folder / NOTICE)
            except OSError as error:
                raise _unrecorded(interruption.node_id, folder, error) from error

    def stop(self, node: Node) -> None:
        """SIGKILL everything of the node, whatever ended it: a machine that is gone is gone.

        Raises ProviderError where that cannot be recorded.
        """
        with self._lock:
            record = self._records.get(node.node_id, NodeRecord(node))
            kill_node(self.folder(node.node_id), record.pid)
            if record.pid in self._children:
                os.waitpid(record.pid, 0)
                self._children.discard(record.pid)
            self._keep(replace(record, node=node, interruption=None))

    def found(self) -> tuple[tuple[Node, ...], tuple[Interruption, ...]]:
        """Nodes that an earlier controller left, in launch order, and their announced ends.

        A launch that was cut short before its process was known is undone: it has failed.
        """
        with self._lock:
            with suppress(OSError):
                self._hold_lock()
            for folder in sorted(self._nodes_dir.glob("*")):
                record = NodeRecord.read(folder)
                if record is None:
                    continue
                if record.pid is None and record.should_run:
                    kill_node(folder, None)
                    at = record.node.launched_at
                    record = record.ended(at, EndCause.FAILED, LAUNCH_ABORTED)
                self._keep(record)
            records = list(self._records.values())
        fates = (record.interruption for record in records)
        return tuple(r.node for r in records), tuple(fate for fate in fates if fate is not None)

    def dead(self) -> list[tuple[str, str]]:
        """Return the nodes whose agent exited without a command, with the known reason."""
        with self._lock:
            return [
                (node_id, self._exit_record(node_id))
                for node_id, record in self._records.items()
                if record.should_run and not self._runs(record)
            ]

    def running(self) -> tuple[str, ...]:
        """Ids of the nodes that have not ended."""
        with self._lock:
            return tuple(i for i, record in self._records.items() if record.node.state.is_alive)

    def folder(self, node_id: str) -> Path:
        """Where everything of a node lies."""
        return self._nodes_dir / node_id

    def _spawn(self, node: Node, folder: Path) -> int:
        command = [
            *(sys.executable, "-m", "costopt.agent"),
            *("--store", str(self._store), "--job", node.job, "--node", node.node_id),
            *("--folder", str(folder), "--notices", f"file:{folder / NOTICE}"),
            *("--meter", "none", "--nvidia-smi", str(folder / "nvidia-smi"), "--health-s", "1"),
            *("--secrets", self._secrets),
            *("--max-unreachable-s", str(self._max_unreachable_s)),
            *("--controller-lock", str(self._state_dir / CONTROLLER_LOCK)),
            *("--launcher", self._launcher, "--processes", str(self._processes)),
        ]
        with (folder / AGENT_LOG).open("ab") as log:
            child = subprocess.Popen(  # noqa: S603
                command,
                env={**os.environ, "PYTHONPATH": _import_path(), FOLDER_VARIABLE: str(folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        # The node may outlive this process and is reaped by its id: Popen is not to mourn it.
        child.returncode = 0
        return child.pid

    def _hold_lock(self) -> None:
        """Show the agents that a controller runs, until this process ends; where one of them looks
        just now, at the next call. Raises OSError."""
        if self._held is not None:
            return
        self._state_dir.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._state_dir / CONTROLLER_LOCK, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
        else:
            self._held = descriptor

    def _keep(self, record: NodeRecord) -> None:
        """Remember the record, on disk too. Raises ProviderError: memory knows it all the same."""
        folder = self.folder(record.node.node_id)
        self._records[record.node.node_id] = record
        try:
            folder.mkdir(parents=True, exist_ok=True)
            record.write(folder)
        except OSError as error:
            raise _unrecorded(record.node.node_id, folder, error) from error

    def _runs(self, record: NodeRecord) -> bool:
        return record.pid is not None and is_running(record.pid, record.started_ticks)

    def _exit_record(self, node_id: str) -> str:
        log = self.folder(node_id) / AGENT_LOG
        words = _last_line(log)
        return f"the node's agent ended{f': {words}' if words else ''}; see {log}"


def _unrecorded(node_id: str, folder: Path, error: OSError) -> ProviderError:
    return ProviderError(
        f"cannot record node {node_id} in {folder}: {error.strerror or error}",
        hint="see that the folder can be written and has space",
    )


def _import_path() -> str:
    """The agent finds costopt where this process does, installed or not."""
    return os.pathsep.join(entry for entry in sys.path if entry)


def _last_line(path: Path) -> str:
    """Of a log that the job's command may have replaced by anything."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as log:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return ""
            log.seek(max(0, status.st_size - TAIL_BYTES))
            lines = log.read(TAIL_BYTES).decode(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "")[:MAX_WORDS]
    return ""


FOLDER_VARIABLE = "COSTOPT_NODE_FOLDER"
SWEEP_S = 5.0


def started_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None where it is gone or unknown.

    Field 22 of /proc/<pid>/stat (proc(5)), counted after the command's name, which may hold
    spaces. A zombie is gone.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def is_running(pid: int, ticks: int | None) -> bool:
    """Whether this very process runs."""
    if Path("/proc/self/stat").exists():
        return ticks is not None and started_ticks(pid) == ticks
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def kill_node(folder: Path, pid: int | None) -> None:
    """SIGKILL the node's process group, then whatever carries the node's mark elsewhere.

    Trainers may sit in sessions of their own. They inherit the environment, in which the node's
    folder is named, so on Linux nothing of the node is missed.
    """
    if pid is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    deadline = time.monotonic() + SWEEP_S
    while (marked := _marked(folder)) and time.monotonic() < deadline:
        for straggler in marked:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(straggler, signal.SIGKILL)
        time.sleep(0.01)


def _marked(folder: Path) -> list[int]:
    mark = f"{FOLDER_VARIABLE}={folder}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return [pid for pid in found if started_ticks(pid) is not None]
