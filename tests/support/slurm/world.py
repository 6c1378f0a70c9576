"""The adapter on a real cluster whose hours pass in seconds.

The clock stands until a test lets it sleep. Slurm's instants are real: each is shown to the adapter
as what the clock said at that instant.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from costopt.domain.fleet import LaunchRequest
from costopt.domain.market import CapacityType, Pool
from costopt.provider.slurm_commands import CommandRunner
from costopt_slurm import SlurmOptions, SlurmProvider
from costopt_slurm.access import SlurmAccess
from costopt_slurm.batch_script import NodeCommand
from costopt_slurm.queries import SlurmQueries
from costopt_slurm.rest_client import RestClient
from tests.support.slurm.cluster import Partition, SlurmCluster, until

GRACE_S = 20
CLUSTER = "campus"
NODE_TYPE = "h100"
PARTITIONS = (
    Partition("high", tier=10, nodes="n[1-3]"),
    Partition("spot", preempted=True, grace_s=GRACE_S, nodes="n[1-3]", more="MaxTime=2-00:00:00"),
    Partition("batch", nodes="n[4-5]", more="MaxTime=2-00:00:00"),
    Partition("empty", preempted=True, nodes="n6", more="MaxTime=2-00:00:00"),
)
SPOT = Pool("slurm", CLUSTER, "spot", NODE_TYPE, CapacityType.SPOT)
EMPTY = Pool("slurm", CLUSTER, "empty", NODE_TYPE, CapacityType.SPOT)
UNINTERRUPTIBLE = Pool("slurm", CLUSTER, "batch", NODE_TYPE, CapacityType.ON_DEMAND)
UNKNOWN = Pool("slurm", "mars-1", "spot", NODE_TYPE, CapacityType.SPOT)
EPOCH = re.compile(r"\b[12]\d{9}\b")


class StandingClock:
    """Moves in ``sleep`` alone. A real second has one value of it, as Slurm counts in seconds."""

    def __init__(self) -> None:
        self._at = datetime.now(UTC).replace(microsecond=0)
        self._history = [(0.0, self._at)]
        self._events: list[tuple[datetime, Callable[[], None]]] = []
        self.settled: Callable[[], bool] = lambda: True
        """Whether what the sleep was for has come about in reality."""

    def now(self) -> datetime:
        return self._at

    def sleep(self, seconds: float) -> None:
        target = self._at + timedelta(seconds=seconds)
        while self._events and self._events[0][0] <= target:
            at, act = self._events.pop(0)
            self._move(at)
            act()
        self._move(target)
        until(self.settled)

    def at(self, instant: datetime, act: Callable[[], None]) -> None:
        """Let something happen at an instant."""
        self._events.append((instant, act))
        self._events.sort(key=lambda event: event[0])

    def shown(self, real_s: int) -> int:
        """Return what the clock said at a real instant, or will say if it runs on."""
        now_s = time.time()
        if real_s > now_s:
            return round(self._at.timestamp() + real_s - now_s)
        return round(
            next(at for since, at in reversed(self._history) if since <= real_s).timestamp()
        )

    def _move(self, target: datetime) -> None:
        time.sleep(1 - time.time() % 1)
        self._at = target
        self._history.append((float(round(time.time())), target))

    def shift(self, said: str) -> str:
        """Return what Slurm said with its instants by this clock."""
        return EPOCH.sub(lambda found: str(self.shown(int(found[0]))), said)


class ShiftedRunner(CommandRunner):
    """Shows Slurm's instants by the test's clock."""

    def __init__(self, cluster: SlurmCluster, clock: StandingClock) -> None:
        super().__init__(slurm_conf=str(cluster.conf))
        self._clock = clock

    def run(self, *command: str, stdin: str = "") -> str:
        return self._clock.shift(super().run(*command, stdin=stdin))


class ShiftedClient(RestClient):
    """Shows Slurm's instants by the test's clock."""

    clock: StandingClock

    def _exchange(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        status, content = super()._exchange(method, path, body)
        return status, self.clock.shift(content.decode()).encode()


class SlurmWorld:
    """Three idle nodes in SPOT, none in EMPTY, two in FIRM."""

    def __init__(self, cluster: SlurmCluster) -> None:
        self.cluster = cluster
        self._begun = cluster.folder / "begun"
        self._begun.mkdir(exist_ok=True)
        self._may_leave = cluster.folder / "may-leave"
        self._may_leave.touch()
        self.clock = StandingClock()
        self.clock.settled = self._is_settled
        self._taken: tuple[int, datetime] | None = None
        cluster.run("scontrol", "update", "nodename=n6", "state=drain", "reason=test")
        self.provider = self.connect()

    def connect(self, access: SlurmAccess | None = None, **more: object) -> SlurmProvider:
        """Another controller of the same account, which remembers nothing."""
        partition = {"usd_per_gpu_hour": 0.5}
        options = SlurmOptions.parse(
            {
                "cluster": CLUSTER,
                "node_types": {NODE_TYPE: {"gpu": "H100", "gpus": 1, "vcpus": 8, "memory_gib": 31}},
                "partitions": {
                    "spot": partition,
                    "empty": partition,
                    "batch": {**partition, "firm": True},
                },
                "folder": str(self.cluster.folder / "shared"),
                **more,
            }
        )
        access = access or SlurmQueries(ShiftedRunner(self.cluster, self.clock))
        return SlurmProvider(self.clock, options, access, self._patient)

    def _patient(self, _: LaunchRequest, __: NodeCommand) -> str:
        """A node that stays until the grace time is over by the clock. Slurm looks every 30 s alone
        whether it is: tests of accounting see nodes that it kills."""
        code = (
            "import os, signal, time; term = {signal.SIGTERM}; "
            "signal.pthread_sigmask(signal.SIG_BLOCK, term); "
            f'open(f"{self._begun}/" + os.environ["SLURM_JOB_ID"], "w").close(); '
            "signal.sigwait(term)\n"
            f'while not os.path.exists("{self._may_leave}"): time.sleep(0.05)'
        )
        return f"exec {sys.executable} -c '{code}'"

    def falls_to(self, pool: Pool, nodes: int, after_s: float) -> None:
        """Others take all nodes but these then, which Slurm announces the grace time before."""

        def take() -> None:
            alive = self.cluster.run("squeue", "-h", "-t", "R", "-p", pool.zone, "-o", "%i")
            until(lambda: all((self._begun / each).exists() for each in alive.split()))
            self._may_leave.unlink()
            job = self.cluster.preempt(3 - nodes)
            running = self.cluster.run("squeue", "-h", "-t", "R", "-p", pool.zone, "-o", "%i")
            until(lambda: all(self._is_noticed(int(each)) for each in running.split()))
            self._taken = job, self.clock.now() + timedelta(seconds=GRACE_S)

        self.clock.at(self.clock.now() + timedelta(seconds=after_s - GRACE_S), take)

    def _is_settled(self) -> bool:
        """Whether no job is on its way out, and others have what is theirs by now."""
        if self._taken is not None and self.clock.now() >= self._taken[1]:
            self._may_leave.touch()
            if self.cluster.state(self._taken[0]) != "RUNNING":
                return False
        return not self.cluster.run("squeue", "-h", "-t", "CG", "-o", "%i")

    def _is_noticed(self, job: int) -> bool:
        return self.cluster.job(job)["PreemptTime"] != "None"
