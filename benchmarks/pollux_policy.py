"""The policy `priced` in Pollux's simulator: it sees what Pollux sees, and may know the work.

The speed of a job on more GPUs is what the simulator's agent has learned from the placements it
ran on, at the batch size that suits them best, and gangs are at most twice as large as the largest
that was tried: as for Pollux itself. A job asks for one GPU. Work is counted in seconds on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.pollux_simulator import NODE_GPUS, NODES
from costopt.optimize.rounds.durations import DurationHistory
from costopt.optimize.rounds.gangs import Floats, GangTable, Ints, Option
from costopt.optimize.rounds.jobs import RoundJobs, RoundPolicy
from costopt.optimize.rounds.placement import Placement

GANGS = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64)
MIN_SPEED = 1e-3


class PricedAllocations:
    """Decides the simulator's allocations. ``is_declared``: the work that remains is known.

    ``shares_speeds``: what a job measures, its application's other jobs know, those to come, too.
    """

    def __init__(
        self, simulator: ModuleType, policy: RoundPolicy, *, is_declared: bool, shares_speeds: bool
    ) -> None:
        applications: Mapping[str, Any] = simulator.APPLICATIONS
        self._policy, self._is_declared = policy, is_declared
        self._speeds = SharedSpeeds(simulator) if shares_speeds else None
        self._group = {name: index for index, name in enumerate(applications)}
        one_tenant = np.zeros(len(applications), dtype=np.int64)
        self._history = DurationHistory(one_tenant, 1)
        self._placement = Placement((NODE_GPUS,) * NODES)
        self._number: dict[str, int] = {}
        self._since_s: dict[str, float] = {}
        self._ended: set[str] = set()
        self._cluster: Any = None

    def attach(self, cluster: Any) -> None:
        """Follow a cluster of the simulator."""
        self._cluster = cluster
        self._number = {job.name: number for number, job in enumerate(cluster.jobs)}
        for job in cluster.jobs:
            # It would be fitted each minute, for Pollux; ours asks where it needs it.
            job.get_speedup_fn = lambda: None
        if self._speeds is not None:
            self._speeds.attach(cluster.jobs)

    def optimize(
        self, infos: Mapping[str, Any], nodes: Sequence[int], previous: Mapping[str, list[int]],
        _template: object,
    ) -> tuple[dict[str, list[int]], int]:  # fmt: skip
        """Return the node of each GPU of each job that runs, and the number of nodes."""
        self._note_ends()
        jobs = [self._cluster.jobs[self._number[name]] for name in infos]
        if self._speeds is not None:
            self._speeds.share(jobs)
            infos = {job.name: self._cluster.get_pollux_job_info(job) for job in jobs}
        seen = self._jobs(jobs, [info.max_replicas for info in infos.values()])
        _, sizes = self._policy.decide(seen, NODES * NODE_GPUS)
        self._place(jobs, sizes, seen)
        found = {}
        for name in infos:
            slices = self._placement.slices(self._number[name])
            gpus = [node for node, count in sorted(slices.items()) for _ in range(count)]
            if gpus != previous.get(name, []):
                self._since_s[name] = self._cluster.current_time
            if gpus:
                found[name] = gpus
        return found, len(nodes)

    def _note_ends(self) -> None:
        for job in self._cluster.jobs:
            if job.completion_time is not None and job.name not in self._ended:
                self._ended.add(job.name)
                self._placement.change([(self._number[job.name], 0)], frozenset())
                group = np.array([self._group[job.application.name]])
                (alone,) = _progress_per_s(job, np.array([1]))
                self._history.observe(group, np.array([job.progress / max(alone, 1e-9)]))
                self._history.refresh()

    def _jobs(self, jobs: Sequence[Any], max_gpus: Sequence[int]) -> RoundJobs:
        options: list[list[Option]] = []
        served_s, remaining_s = [], []
        for job, most in zip(jobs, max_gpus, strict=True):
            gangs = np.array([gpus for gpus in GANGS if gpus <= most])
            rates = _progress_per_s(job, gangs)
            alone = rates[0] if rates[0] > 0 else rates.max() / gangs[rates.argmax()]
            speeds = np.maximum(rates / alone, MIN_SPEED)
            options.append(list(zip(gangs.tolist(), speeds.tolist(), strict=True)))
            served_s.append(job.progress / alone)
            remaining_s.append(max((_whole_progress(job) - job.progress) / alone, 1.0))
        table = GangTable.of(options, [1] * len(jobs))
        served, remaining = np.array(served_s), np.array(remaining_s)
        index, spread = 1 / remaining, np.zeros(len(jobs))
        if not self._is_declared:
            group = np.array([self._group[job.application.name] for job in jobs])
            remaining = self._history.remaining_s(group, served)
            index = self._history.index(group, served)
            spread = self._history.spread(group, served)
        now_s = self._cluster.current_time
        return RoundJobs(
            gangs=table,
            weight=np.ones(len(jobs)),
            held=np.array([self._held(job) for job in jobs], dtype=np.int64),
            held_s=np.array([now_s - self._since_s.get(job.name, now_s) for job in jobs]),
            served_s=served,
            remaining_s=remaining,
            spread=spread,
            index=index,
            submit_s=np.array([job.submission_time for job in jobs], dtype=np.float64),
            is_behind=np.zeros(len(jobs), dtype=bool),
            price_cap=np.full(len(jobs), np.inf),
        )

    def _held(self, job: Any) -> int:
        return sum(self._placement.slices(self._number[job.name]).values())

    def _place(self, jobs: Sequence[Any], sizes: Ints, seen: RoundJobs) -> None:
        """Place the gangs that change; one that finds no room to start does so on fewer GPUs."""
        numbers = [self._number[job.name] for job in jobs]
        changes = [(numbers[row], int(sizes[row])) for row in np.flatnonzero(sizes != seen.held)]
        refused, _ = self._placement.change(changes, frozenset())
        for row, number in enumerate(numbers):
            if number not in refused or self._placement.slices(number):
                continue
            smaller = sorted({int(gpus) for gpus in seen.gangs.gpus[row] if gpus < sizes[row]})
            for gpus in reversed(smaller):
                if not self._placement.change([(number, gpus)], frozenset())[0]:
                    break


class SharedSpeeds:
    """One profile of speeds for all jobs of an application, in place of one for each job.

    A job that has not run takes the gradients of the first that has, until it has its own.
    """

    def __init__(self, simulator: ModuleType) -> None:
        self._fit = simulator.fit_perf_params
        self._profiles: dict[str, dict[tuple[int, int, int], tuple[float, float]]] = {}
        self._fitted: dict[str, tuple[int, Any]] = {}
        self._gradients: dict[str, Any] = {}

    def attach(self, jobs: Sequence[Any]) -> None:
        """Let the jobs write into one profile."""
        for job in jobs:
            job.profile = self._profiles.setdefault(job.application.name, {})

    def share(self, jobs: Sequence[Any]) -> None:
        """Tell each job what has been measured by now."""
        for job in jobs:
            if job.grad_params is not None:
                self._gradients.setdefault(job.application.name, job.grad_params)
        for job in jobs:
            name, profile = job.application.name, job.profile
            if name not in self._gradients:
                continue
            count, fitted = self._fitted.get(name, (0, None))
            if count < len(profile):
                points = np.array([(*key, *seconds) for key, seconds in profile.items()])
                nodes, gpus, batch = points[:, :3].astype(np.int64).T
                step_s, sync_s = points[:, 3:].T
                fitted = self._fit(nodes, gpus, batch, step_s - sync_s, step_s)
                self._fitted[name] = len(profile), fitted
            job.perf_params = fitted
            if job.grad_params is None:
                job.grad_params = self._gradients[name]


def in_simulator(
    simulator: ModuleType, policy: RoundPolicy, *, is_declared: bool, shares_speeds: bool
) -> Any:
    """Return the policy as one of the simulator's, which runs its jobs as it runs Pollux's."""
    ours = PricedAllocations(
        simulator, policy, is_declared=is_declared, shares_speeds=shares_speeds
    )
    methods = {"__init__": lambda _: None, "attach": lambda _, cluster: ours.attach(cluster),
               "optimize": lambda _, *seen: ours.optimize(*seen)}  # fmt: skip
    return type("Priced", (simulator.PolluxPolicy,), methods)()


def _progress_per_s(job: Any, gpus: Ints) -> Floats:
    """What the job's agent expects of so many GPUs on as few nodes as hold them."""
    application = job.application
    if job.perf_params is None:
        alone = np.zeros(len(gpus))
        alone[0] = _declared_rate(application)
        return alone
    expected, _, _ = job.get_goodput_fn().optimize(
        -(-gpus // NODE_GPUS), gpus, application.max_batch_size,
        (application.min_local_bsz, application.max_local_bsz), accumulation=True,
    )  # fmt: skip
    rates: Floats = np.asarray(expected, dtype=np.float64) / application.init_batch_size
    return rates


def _declared_rate(application: Any) -> float:
    """The progress per second of a job that has not run, on one GPU at its first batch size."""
    batch = max(application.init_batch_size, application.min_local_bsz)
    passes = -(-batch // application.max_local_bsz)
    step_s, sync_s = application.get_throughput((1,), -(-batch // passes))
    return float(1 / (step_s + (step_s - sync_s) * (passes - 1)))


def _whole_progress(job: Any) -> float:
    """The progress at which the job will have ended, at its present batch size."""
    application = job.application
    batch = sum(job.placement) * job.atomic_bsz * (job.accum_steps + 1)
    batch = job.target_batch_size or batch
    batch = min(max(batch, application.init_batch_size), application.max_batch_size)
    last = max(application.get_completion_epoch(batch), job.epoch) + 1
    return float(application.get_progress(min(last, application.max_epochs)))
