"""The replay of a workload under a round policy: every round decides the sizes of all jobs.

Between two rounds jobs start when they are submitted, if they may, and end at their exact time;
rounds in which nothing could change are passed over. Work is the recorded duration on the GPUs
asked for. The same inputs give the same schedule: nothing is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costopt.optimize.rounds.durations import DurationHistory
from costopt.optimize.rounds.gangs import Flags, Floats, GangTable, Ints
from costopt.optimize.rounds.jobs import RoundJobs, RoundPolicy
from costopt.optimize.rounds.placement import Placement, place_round
from costopt.optimize.rounds.virtual_share import VirtualShares
from costopt.workload.workload import Workload

REFRESH_S = 3600.0
"""How often predictions take account of what has ended."""
SIZE_CLASSES = 64


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """``round_s`` is the time between decisions, ``restart_s`` what a resize or preemption costs
    a job. ``knows_work``: an oracle that is given all durations. ``every_round``: decide in rounds
    in which nothing is submitted or ends, too, as a daemon does."""

    round_s: float = 60.0
    restart_s: float = 60.0
    knows_work: bool = False
    every_round: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class FleetSchedule:
    """When each job first ran and ended (seconds since the start), its restarts and GPU-seconds.

    ``busy_at_s`` and ``busy_gpus`` say how many GPUs were held from each instant on.
    ``switched_off`` are the tenants whose predictions were worse than their mean at the end.
    """

    first_run_s: Floats
    end_s: Floats
    restarts: Ints
    gpu_s: Floats
    busy_at_s: Floats
    busy_gpus: Ints
    switched_off: tuple[str, ...] = ()


class FleetReplay:
    """One replay. ``before`` are jobs that had ended, from which durations are learned."""

    def __init__(
        self, workload: Workload, before: Workload, gangs: GangTable, nodes: tuple[int, ...],
        policy: RoundPolicy, settings: ReplaySettings, partition_gpus: Ints | None = None,
    ) -> None:  # fmt: skip
        self._work, self._gangs, self._policy = workload, gangs, policy
        self._settings = settings
        self._gpus = sum(nodes)
        self._placement = Placement(nodes) if len(nodes) > 1 else None
        self._group, self._history = _learn(workload, before)
        self._knows = workload.declared | settings.knows_work
        self._knows_all = bool(self._knows.all())
        self._weight = workload.weights
        count = len(workload.jobs)
        self._shares = None
        if partition_gpus is not None:
            self._shares = VirtualShares(workload.tenant, workload.gpus, partition_gpus)
        self._left_s = workload.duration_s.copy()
        self._held = np.zeros(count, dtype=np.int64)
        self._speed = np.zeros(count)
        self._ready_s = np.zeros(count)
        self._since_s = np.zeros(count)
        self._first_s = np.full(count, np.nan)
        self._end_s = np.full(count, np.nan)
        self._restarts = np.zeros(count, dtype=np.int64)
        self._gpu_s = np.zeros(count)
        self._active = np.zeros(0, dtype=np.int64)
        self._arrived = 0
        self._price = 0.0
        self._now_s = float(workload.submit_s[0])

    def run(self) -> FleetSchedule:
        """Return the schedule until the last job has ended."""
        busy: list[tuple[float, int]] = []
        due_s = self._now_s
        refresh_s = self._now_s
        while True:
            self._admit_until(due_s)
            self._advance(due_s)
            if not len(self._active) and self._arrived == len(self._work.jobs):
                break
            if due_s >= refresh_s:
                self._history.refresh()
                refresh_s = due_s + REFRESH_S
            is_settled = self._round()
            busy.append((due_s, int(self._held[self._active].sum())))
            due_s = self._next_round_s(is_settled)
        off = tuple(self._work.tenants[each] for each in np.flatnonzero(self._history.is_off))
        return FleetSchedule(
            self._first_s, self._end_s, self._restarts, self._gpu_s,
            np.array([at for at, _ in busy]), np.array([gpus for _, gpus in busy]), off,
        )  # fmt: skip

    def _admit_until(self, due_s: float) -> None:
        """Let what is submitted before the next round start, each job at its own instant."""
        submit_s = self._work.submit_s
        while self._arrived < len(submit_s) and submit_s[self._arrived] < due_s:
            self._advance(float(submit_s[self._arrived]))
            held, seen = self._held[self._active], self._see(self._active)
            if int(held.sum()) < self._gpus or seen[-1][held == 0].any():
                jobs = self._jobs(self._active, *seen)
                self._resize(jobs, self._policy.admit(jobs, self._gpus, self._price))

    def _advance(self, now_s: float) -> None:
        """Let jobs run until now, end those that are done, and accept what was submitted."""
        active, before_s = self._active, self._now_s
        begin_s = np.maximum(self._ready_s[active], before_s)
        done_s = np.maximum(0.0, now_s - begin_s) * self._speed[active]
        left_s, held = self._left_s[active], self._held[active]
        is_over = (done_s >= left_s) & (held > 0)
        self._now_s = now_s
        if is_over.any():
            over = active[is_over]
            self._end_s[over] = begin_s[is_over] + left_s[is_over] / self._speed[over]
            self._gpu_s[over] += held[is_over] * (self._end_s[over] - before_s)
            active, held = active[~is_over], held[~is_over]
            left_s, done_s = left_s[~is_over], done_s[~is_over]
            self._active = active
            self._release(over)
        self._left_s[active] = left_s - done_s
        self._gpu_s[active] += held * (now_s - before_s)
        new = int(np.searchsorted(self._work.submit_s, now_s, side="right"))
        if new > self._arrived:
            arrivals = np.arange(self._arrived, new)
            self._active = np.concatenate([self._active, arrivals])
            self._arrived = new
            if self._shares is not None:
                for job in arrivals:
                    self._shares.submit(int(job), float(self._work.submit_s[job]))

    def _release(self, over: Ints) -> None:
        self._held[over] = 0
        if self._placement is not None:
            self._placement.change(((int(job), 0) for job in over), frozenset())
        needed_s = self._work.duration_s[over]
        self._history.observe(self._group[over], needed_s)
        if self._shares is not None:
            self._shares.end(over, self._now_s, needed_s)

    def _round(self) -> bool:
        """Decide and apply the sizes; return whether nothing changed and no job waits."""
        if not len(self._active):
            return True
        jobs = self._jobs(self._active, *self._see(self._active))
        self._price, sizes = self._policy.decide(jobs, self._gpus)
        return self._resize(jobs, sizes)

    def _resize(self, jobs: RoundJobs, sizes: Ints) -> bool:
        """Place and apply sizes; return whether nothing changed and no job waits."""
        active = self._active
        assert int(sizes.sum()) <= self._gpus, "a policy gave more GPUs than there are"
        changes = np.flatnonzero(sizes != jobs.held)
        if len(changes) and self._placement is not None:
            self._apply(place_round(self._placement, active, jobs, sizes, self._policy.protected_s))
        elif len(changes):
            self._apply(dict(zip(active[changes].tolist(), sizes[changes].tolist(), strict=True)))
        return not len(changes) and bool(jobs.held.all())

    def _see(self, active: Ints) -> tuple[Floats, Floats, Flags]:
        """The work of jobs that is done and that remains, and which of them are behind."""
        served_s, remaining_s = self._served_and_remaining_s(active)
        is_behind: Flags = np.zeros(len(active), dtype=bool)
        if self._shares is not None:
            self._shares.advance(self._now_s, active, served_s + remaining_s)
            is_behind = self._shares.is_behind(active, served_s)
        return served_s, remaining_s, is_behind

    def _served_and_remaining_s(self, active: Ints) -> tuple[Floats, Floats]:
        remaining_s = self._left_s[active]
        served_s = self._work.duration_s[active] - remaining_s
        if not self._knows_all:
            expected_s = self._history.remaining_s(self._group[active], served_s)
            remaining_s = np.where(self._knows[active], remaining_s, expected_s)
        return served_s, remaining_s

    def _jobs(self, active: Ints, served_s: Floats, left_s: Floats, behind: Flags) -> RoundJobs:
        index, knows = 1 / np.maximum(left_s.round(6), 1.0), self._knows[active]
        spread, group = np.zeros(len(active)), self._group[active]
        if not self._knows_all:
            index = np.where(knows, index, self._history.index(group, served_s))
            spread = np.where(knows, 0.0, self._history.spread(group, served_s))
        weight = self._weight[active]
        if self._shares is not None:
            weight = weight * self._shares.worth(active)
        return RoundJobs(
            gangs=self._gangs.rows(active), weight=weight, held=self._held[active],
            held_s=self._now_s - self._since_s[active], served_s=served_s,
            remaining_s=left_s, spread=spread, index=index, is_behind=behind,
            submit_s=self._work.submit_s[active], price_cap=np.full(len(active), np.inf),
        )  # fmt: skip

    def _apply(self, wanted: dict[int, int]) -> None:
        """Let each job go on with its new GPUs; a gang that is changed or moved restarts."""
        if not wanted:
            return
        changed = np.array(list(wanted), dtype=np.int64)
        gpus = np.array(list(wanted.values()), dtype=np.int64)
        runs, ran = gpus > 0, ~np.isnan(self._first_s[changed])
        again = changed[runs & ran]
        self._restarts[again] += 1
        self._first_s[changed[runs & ~ran]] = self._now_s
        self._ready_s[changed] = self._now_s
        self._ready_s[again] += self._settings.restart_s
        self._since_s[changed] = self._now_s
        self._held[changed] = gpus
        table = self._gangs.rows(changed)
        _, speed = table.pick(table.column(gpus))
        self._speed[changed] = np.where(runs, speed, 0.0)

    def _next_round_s(self, is_settled: bool) -> float:
        """The next round; where nothing changes, the first after the next end or submission."""
        round_s = self._settings.round_s
        if not is_settled or (self._settings.every_round and len(self._active)):
            return self._now_s + round_s
        coming_s = np.inf
        if self._arrived < len(self._work.jobs):
            coming_s = float(self._work.submit_s[self._arrived])
        if len(self._active):
            begin_s = np.maximum(self._ready_s[self._active], self._now_s)
            ends_s = begin_s + self._left_s[self._active] / self._speed[self._active]
            coming_s = min(coming_s, float(ends_s.min()))
        rounds = max(1.0, np.ceil((coming_s - self._now_s) / round_s))
        return float(self._now_s + rounds * round_s)


def _learn(workload: Workload, before: Workload) -> tuple[Ints, DurationHistory]:
    """The group of each job, and what the ended jobs say of the groups."""
    keys = []
    for each in (before, workload):
        size = np.ceil(np.log2(np.maximum(each.gpus, 1))).astype(np.int64)
        keys.append((each.tenant * len(each.names) + each.name) * SIZE_CLASSES + size)
    known, group = np.unique(np.concatenate(keys), return_inverse=True)
    tenant = known // SIZE_CLASSES // len(workload.names)
    history = DurationHistory(tenant, len(workload.tenants))
    count = len(before.jobs)
    if count:
        history.observe(group[:count], before.duration_s)
        history.refresh()
    return group[count:], history
