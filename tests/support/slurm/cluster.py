"""A real Slurm cluster on this machine: munged, slurmctld and one slurmd for each node.

Everything lies in one folder and listens on the loopback, at ports that no other process has. No
init, no cgroups and no configuration in /etc is needed. Nodes have the processors, memory and GPUs
that the configuration says, whatever the machine has. Programs may use it without pytest:

    with slurm_cluster(nodes=2) as slurm:
        slurm.run("sinfo")
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.live_run import wait_until
from tests.support.reserved_port import reserved_port
from tests.support.slurm import accounting

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
COMMAND_S = 15.0
START_S = 120.0
SCHEDULER = (
    "sched_interval=1", "bf_interval=1", "batch_sched_delay=0", "sched_min_interval=0",
    "nohold_on_prolog_fail",
)  # fmt: skip
PLUGINS = "/usr/lib/x86_64-linux-gnu/slurm-wlm"


@dataclass(frozen=True)
class Partition:
    """``preempted``: jobs of a partition with a higher ``tier`` take its nodes after ``grace_s``.

    ``more`` are further settings of its line in slurm.conf.
    """

    name: str
    tier: int = 1
    preempted: bool = False
    grace_s: int = 10
    nodes: str = "ALL"
    more: str = ""

    def line(self) -> str:
        """Return its line of slurm.conf."""
        mode = f"REQUEUE GraceTime={self.grace_s}" if self.preempted else "OFF"
        return (
            f"PartitionName={self.name} Nodes={self.nodes} PriorityTier={self.tier} "
            f"PreemptMode={mode} {self.more}"
        )


PARTITIONS = (
    Partition("high", tier=10),
    Partition("spot", preempted=True, more="Default=YES MaxTime=2-00:00:00"),
    Partition("batch", more="MaxTime=2-00:00:00"),
)
"""``high`` takes the nodes of ``spot``, and no partition those of ``batch``."""


class SlurmCluster:
    """The cluster's processes, and commands to it. ``settings`` are further lines of slurm.conf.

    Nodes are called n1, n2, …; those that other lines name are started by ``start_node``.
    ``accounts``: slurmdbd keeps what sacct shows, after ``skip_without_accounting``.
    """

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 4,
        gpus: int = 8,
        partitions: Sequence[Partition] = PARTITIONS,
        settings: Sequence[str] = (),
        kill_wait_s: int = 5,
        accounts: bool = False,
    ) -> None:
        self.folder = folder
        self.nodes = tuple(f"n{number}" for number in range(1, nodes + 1))
        self.conf = folder / "slurm.conf"
        self.completed = folder / "completed.txt"
        """One line for each job that has ended: jobcomp/filetxt, what Slurm accounts."""
        self._gpus = gpus
        self._partitions = partitions
        self._settings = settings
        self._kill_wait_s = kill_wait_s
        self.accounts = accounts
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._ports = ExitStack()

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process needs in its environment to talk to this cluster and no other."""
        return {"SLURM_CONF": str(self.conf)}

    def start(self) -> None:
        """Start everything, and wait until all nodes are idle."""
        self._write_configuration()
        self.start_munge()
        if self.accounts:
            self._start_accounts()
        self.start_controller()
        for node in self.nodes:
            self.start_node(node)
        idle = f"{len(self.nodes)} idle"
        until(lambda: idle in self.run("sinfo", "-ho", "%D %t", "-n", ",".join(self.nodes)))

    def stop(self) -> None:
        """Kill everything that the cluster runs, jobs too."""
        for name in tuple(self._children):
            self.kill(name)
        kill_processes(self.folder)
        self._ports.close()

    def start_munge(self) -> None:
        """Start the daemon that authenticates users, and wait until it answers."""
        at = self.folder / "munge"
        self._spawn(
            "munged", "munged", "--foreground", "--force", f"--key-file={at / 'key'}",
            f"--socket={at / 'socket'}", f"--pid-file={at / 'pid'}", f"--log-file={at / 'log'}",
            f"--seed-file={at / 'seed'}",
        )  # fmt: skip
        until((at / "socket").exists)

    def _start_accounts(self) -> None:
        """Start MariaDB and slurmdbd, without which slurmctld does not start at first."""
        data, port, database_port = self.folder / "database", self._port(), self._port()
        accounting.install_database(data)
        self._spawn("mariadbd", *accounting.database_command(data, database_port))
        ping = ("mariadb-admin", "--no-defaults", f"--socket={data / 'socket'}", "ping")
        until(lambda: self.ask(*ping).returncode == 0)
        settings = accounting.cluster_settings(self.folder, port)
        with self.conf.open("a", encoding="utf-8") as conf:
            conf.writelines(f"{line}\n" for line in settings)
        accounting.write_slurmdbd_conf(self.folder, port, database_port, PLUGINS)
        self.start_slurmdbd()

    def start_slurmdbd(self) -> None:
        """Start the daemon that keeps accounts, and wait until it answers."""
        self._spawn("slurmdbd", "slurmdbd", "-D")
        until(lambda: self.ask("sacctmgr", "-nP", "show", "cluster").returncode == 0)

    def start_controller(self) -> None:
        """Start slurmctld, and wait until it answers."""
        self._spawn("slurmctld", "slurmctld", "-D", "-f", str(self.conf))
        until(lambda: self.ask("scontrol", "ping").returncode == 0)

    def start_node(self, name: str, *options: str) -> None:
        """Start a node's slurmd; ``-b`` reports a boot, as nodes that are resumed have to."""
        self._spawn(name, "slurmd", "-D", "-f", str(self.conf), "-N", name, *options)

    def kill(self, name: str, by: signal.Signals = signal.SIGKILL) -> None:
        """End munged, slurmctld or a node's slurmd, whose jobs go on."""
        child = self._children.pop(name)
        child.send_signal(by)
        child.wait()
        if name == "munged":
            (self.folder / "munge" / "socket").unlink(missing_ok=True)

    def pause(self, name: str) -> None:
        """Let a daemon hang: it accepts connections and answers none."""
        self._children[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Let it go on."""
        self._children[name].send_signal(signal.SIGCONT)

    def run(self, *command: str, environment: Mapping[str, str] | None = None) -> str:
        """Return what a command prints. Raise AssertionError where it fails."""
        done = self.ask(*command, environment=environment)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr or done.stdout}"
        return done.stdout.strip()

    def ask(
        self, *command: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command within the limit that every client needs: without a controller it blocks
        for minutes."""
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            env={**os.environ, **self.environment, **(environment or {})},
            cwd=self.folder,
            check=False,
        )

    def sbatch(self, script: str, *options: str) -> int:
        """Submit a batch script without its first line; return the job's id."""
        path = self.folder / "jobs" / f"{time.monotonic_ns()}.sh"
        path.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
        output = f"--output={self.folder / 'jobs' / '%j.out'}"
        return int(self.run("sbatch", "--parsable", output, *options, str(path)))

    def preempt(self, nodes: int, seconds: float = 3600.0) -> int:
        """Submit another user's job that takes whole nodes of ``spot``; return its id."""
        return self.sbatch(
            f"sleep {seconds}", "-p", "high", f"-N{nodes}", "--exclusive", "--job-name=others"
        )

    def job(self, job_id: int) -> dict[str, str]:
        """Return the job's fields as scontrol shows them."""
        text = self.run("scontrol", "--oneliner", "show", "job", str(job_id))
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def state(self, job_id: int) -> str:
        """Return the job's state, such as RUNNING."""
        return self.job(job_id)["JobState"]

    def await_state(self, job_id: int, *states: str, seconds: float = START_S) -> str:
        """Return the first of these states that the job is in."""
        until(lambda: self.state(job_id) in states, seconds)
        return self.state(job_id)

    def _spawn(self, name: str, *command: str) -> None:
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            self._children[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
                cwd=self.folder,
                start_new_session=True,
            )

    def _write_configuration(self) -> None:
        for name in ("munge", "state", "spool", "run", "log", "dev", "jobs"):
            (self.folder / name).mkdir(mode=0o711 if name == "munge" else 0o755)
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        for number in range(self._gpus):
            (self.folder / "dev" / f"gpu{number}").touch()
        gpus = f"Name=gpu Type=h100 File={self.folder}/dev/gpu[0-{self._gpus - 1}]\n"
        (self.folder / "gres.conf").write_text(gpus if self._gpus else "", encoding="utf-8")
        self.conf.write_text("\n".join(self._lines()) + "\n", encoding="utf-8")

    def _lines(self) -> Iterator[str]:
        host, user, folder = socket.gethostname(), getpass.getuser(), self.folder
        yield from f"""\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={self._port()}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/filetxt
JobCompLoc={self.completed}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters={",".join(SCHEDULER)}
ReturnToService=2
MpiDefault=none
KillWait={self._kill_wait_s}
MessageTimeout=10
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PluginDir={PLUGINS}""".splitlines()
        gres = f" Gres=gpu:h100:{self._gpus}" if self._gpus else ""
        if self._gpus:
            yield "GresTypes=gpu"
        for name in self.nodes:
            yield (
                f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={self._port()} "
                f"CPUs=8 RealMemory=32000{gres} State=UNKNOWN"
            )
        yield from (partition.line() for partition in self._partitions)
        yield from self._settings

    def _port(self) -> int:
        return self._ports.enter_context(reserved_port())


def until(reached: Callable[[], bool], seconds: float = START_S) -> None:
    """Wait for a state. Raise AssertionError where it does not come."""
    wait_until(reached, "such state", seconds)


def kill_processes(folder: Path) -> None:
    """SIGKILL whatever has the cluster's configuration in its environment, until nothing has.

    Steps of jobs sit in sessions of their own; they inherit the environment.
    """
    mark = f"SLURM_CONF={folder}/".encode()
    deadline = time.monotonic() + START_S
    while found := [pid for pid in _processes() if mark in _environ(pid)]:
        assert time.monotonic() < deadline, f"{found} cannot be killed"
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)


def _processes() -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*"):
        pid = int(path.name)
        if pid != os.getpid() and "\nState:\tZ" not in _read(path / "status").decode():
            yield pid


def _environ(pid: int) -> bytes:
    return _read(Path(f"/proc/{pid}/environ"))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def missing_programs() -> tuple[str, ...]:
    """Return the programs that are not installed."""
    return tuple(name for name in PROGRAMS if shutil.which(name) is None)


@contextmanager
def slurm_cluster(
    *,
    nodes: int = 4,
    gpus: int = 8,
    partitions: Sequence[Partition] = PARTITIONS,
    settings: Sequence[str] = (),
    kill_wait_s: int = 5,
    accounts: bool = False,
) -> Iterator[SlurmCluster]:
    """A running cluster; it ends with the block, and where this process is killed."""
    folder = Path(tempfile.mkdtemp(prefix="costopt-slurm-"))
    folder.chmod(0o755)
    cluster = SlurmCluster(
        folder,
        nodes=nodes,
        gpus=gpus,
        partitions=partitions,
        settings=settings,
        kill_wait_s=kill_wait_s,
        accounts=accounts,
    )
    try:
        with _watched(folder):
            cluster.start()
            yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _watched(folder: Path) -> Iterator[None]:
    """End the cluster, and remove its folder, also where this process is killed."""
    marked = f"grep -qzs '^SLURM_CONF={folder}/' $p/environ && kill -9 ${{p#/proc/}}"
    script = (
        f"while [ -e /proc/{os.getpid()} ]; do sleep 1; done; "
        f"for i in 1 2 3; do for p in /proc/[0-9]*; do {marked}; done; done; rm -rf {folder}"
    )
    watch = subprocess.Popen(
        ["/bin/sh", "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    try:
        yield
    finally:
        os.killpg(watch.pid, signal.SIGKILL)
        watch.wait()
