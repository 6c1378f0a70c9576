"""The policies that a fleet is replayed under, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from costopt.backtesting.executors import map_on_ray
from costopt.backtesting.fleet.figures import PolicyFigures, measure
from costopt.backtesting.fleet.partitions import RULE, partition_sizes
from costopt.backtesting.fleet.queues import QueueSchedule
from costopt.backtesting.fleet.replay import FleetReplay, FleetSchedule, ReplaySettings
from costopt.domain.cluster import Cluster
from costopt.domain.errors import WorkloadError
from costopt.optimize.rounds.gangs import Floats, GangTable, Ints, Option, SpeedCurve
from costopt.optimize.rounds.jobs import RoundPolicy
from costopt.optimize.rounds.priced import PricedPolicy
from costopt.optimize.rounds.rigid import RigidPolicy
from costopt.workload.workload import Workload

STATIC = "static"
ROUND_POLICIES: dict[str, Callable[[ReplaySettings], RoundPolicy]] = {
    "attained-service": lambda _: RigidPolicy("attained-service"),
    "gittins": lambda _: RigidPolicy("index"),
    "srpt-oracle": lambda _: RigidPolicy("index"),
    "priced": lambda settings: PricedPolicy(restart_s=settings.restart_s),
}
DEFAULT_CURVE = SpeedCurve()
DEFAULT_SETTINGS = ReplaySettings()
POLICY_NAMES = (STATIC, "fifo", "easy", *ROUND_POLICIES)


@dataclass(frozen=True, slots=True, eq=False)
class FleetTrial:
    """A stretch of a workload on a cluster. ``before`` are jobs that had ended when it begins."""

    workload: Workload
    before: Workload
    cluster: Cluster
    days: float
    curve: SpeedCurve = DEFAULT_CURVE
    settings: ReplaySettings = DEFAULT_SETTINGS

    @property
    def partitions(self) -> Ints:
        """The GPUs of each tenant's own partition."""
        return partition_sizes(self.workload, self.cluster, self.days)

    def static(self) -> FleetSchedule:
        """Return the schedule of the tenants' own partitions."""
        jobs = self.workload
        start_s = np.zeros(len(jobs.jobs))
        for tenant, gpus in enumerate(self.partitions):
            own = jobs.tenant == tenant
            if own.any():
                queue = QueueSchedule(
                    jobs.submit_s[own], jobs.duration_s[own], jobs.gpus[own], int(gpus)
                )
                start_s[own] = queue.run(backfill=True)
        return _queued(start_s, jobs.duration_s, jobs.gpus)

    def replay(self, policy: str) -> FleetSchedule:
        """Return the schedule of one of POLICY_NAMES. Raise WorkloadError for an impossible job."""
        if policy == STATIC:
            return self.static()
        if policy in ("fifo", "easy"):
            table = self._table(rigid=True)
            gpus, speed = table.pick(table.asked)
            needed_s = self.workload.duration_s / speed
            queue = QueueSchedule(self.workload.submit_s, needed_s, gpus, self.cluster.gpus)
            return _queued(queue.run(backfill=policy == "easy"), needed_s, gpus)
        is_priced = policy == "priced"
        return FleetReplay(
            self.workload, self.before, self._table(rigid=not is_priced),
            self.cluster.node_gpus if is_priced else (self.cluster.gpus,),
            ROUND_POLICIES[policy](self.settings),
            replace(self.settings, knows_work=policy == "srpt-oracle"),
            self.partitions if is_priced else None,
        ).run()  # fmt: skip

    def _table(self, *, rigid: bool) -> GangTable:
        options: list[list[Option]] = []
        asked: list[int] = []
        for job in self.workload.jobs:
            if job.speeds:
                base = dict(job.speeds)[job.gpus]
                all_options = [(gpus, speed / base) for gpus, speed in job.speeds]
                low, high = job.smallest_gpus or 1, job.largest_gpus or job.speeds[-1][0]
                all_options = [each for each in all_options if low <= each[0] <= high]
            else:
                all_options = self.curve.options(job.gpus, job.smallest_gpus, job.largest_gpus)
            fitting = [each for each in all_options if each[0] <= self.cluster.gpus]
            if not fitting:
                raise WorkloadError(
                    f"job {job.job_id} runs on {all_options[0][0]} GPUs or more, cluster "
                    f"{self.cluster.name} has {self.cluster.gpus}",
                    hint="leave it out of the workload, or say its smallest_gpus",
                    code="too_large",
                    subject=job.job_id,
                )
            own = max(gpus for gpus, _ in fitting if gpus <= job.gpus)
            asked.append(own)
            options.append([each for each in fitting if each[0] == own] if rigid else fitting)
        return GangTable.of(options, asked)


def _queued(start_s: Floats, needed_s: Floats, gpus: Ints) -> FleetSchedule:
    """The schedule of jobs that run once, from start to end."""
    end_s = start_s + needed_s
    at_s = np.concatenate([end_s, start_s])
    order = np.argsort(at_s, kind="stable")
    busy = np.concatenate([-gpus, gpus])[order].cumsum()
    restarts = np.zeros(len(start_s), dtype=np.int64)
    return FleetSchedule(start_s, end_s, restarts, gpus * needed_s, at_s[order], busy)


@dataclass(frozen=True, slots=True)
class FleetResult:
    """The figures of each policy, and how they came about, in sentences."""

    figures: tuple[PolicyFigures, ...]
    notes: tuple[str, ...]


def replay_fleet(trial: FleetTrial, policies: Sequence[str], ray: str | None = None) -> FleetResult:
    """Return the figures of each policy, against the tenants' own partitions.

    The policies are tasks of the Ray cluster at ``ray`` where an address is given. Raises
    MissingExtraError, and CostoptError where that cluster does not answer.
    """
    run = partial(_replayed, trial, trial.static())
    names = list(policies)
    figures = [run(name) for name in names] if ray is None else map_on_ray(run, names, ray)
    return FleetResult(tuple(figures), _notes(trial, figures))


def _replayed(trial: FleetTrial, static: FleetSchedule, name: str) -> PolicyFigures:
    schedule = static if name == STATIC else trial.replay(name)
    gpus = int(trial.partitions.sum()) if name == STATIC else trial.cluster.gpus
    return measure(name, schedule, static, trial.workload, trial.cluster, gpus, trial.days)


def _notes(trial: FleetTrial, figures: Sequence[PolicyFigures]) -> tuple[str, ...]:
    measured = sum(bool(job.speeds) for job in trial.workload.jobs)
    curve = trial.curve
    notes = [
        RULE
        if not trial.cluster.partition_gpus
        else "Static: the partitions of the cluster's file, with EASY backfill.",
        f"Speed of a job that asked for n GPUs on g of them: measured for {measured:,} jobs, "
        f"otherwise assumed: (g/n)^{curve.below:g} below n, (g/n)^{curve.above:g} above. A restart "
        f"takes {trial.settings.restart_s:g} s. The cluster starts empty; all jobs run to their "
        "end.",
        "static, fifo and easy know all durations and count GPUs without placing them; "
        "srpt-oracle knows them too. priced places every gang on nodes.",
    ]
    larger = int((trial.workload.gpus > trial.cluster.gpus).sum())
    if larger:
        notes.append(f"{larger:,} jobs ask for more GPUs than there are and run on fewer.")
    notes += [
        f"{each.policy}: predictions switched off for {', '.join(each.switched_off)}: they were "
        "worse than the tenant's mean duration."
        for each in figures
        if each.switched_off and each.policy in ("priced", "gittins")
    ]
    return tuple(notes)
