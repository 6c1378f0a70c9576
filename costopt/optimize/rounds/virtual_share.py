"""Beside the real cluster each tenant's own partition, on which its jobs run first in, first out.

A job starts there at the instant at which it is submitted or GPUs become free, as in a partition
that has no rounds.

How long a job would run there is known when it has ended; until then it is what it has had plus
what it is expected to need. By Little's law the mean completion time of a tenant's jobs is the time
integral of their number, so a tenant is worse off than in its partition while the integral of its
jobs that run here exceeds that of the jobs that would be there.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from costopt.optimize.rounds.gangs import Flags, Floats, Ints

MARGIN = 0.02
"""A tenant that was worse off must gain this part of its jobs' time before it is not."""

MAX_SHARE = 0.25
"""Of the partitions' GPUs. Where more than that asks to come first there are too few GPUs for all
partitions, and only jobs are served first that lag as below, of tenants that have lost by now."""
MIN_LAG_S = 300.0
MIN_LAG_SHARE = 0.05
"""Otherwise a job of a tenant that will be worse off counts as behind until it is ahead by as much:
one restart would make it lag."""

WORSE_WORTH = 2.0
"""What an hour of a job is worth, by its weight, while its tenant will be worse off: the multiplier
of the tenant's bound, which holds where too much asks to come first, too. Chosen on Philly, 18
September to 1 October 2017 with speeds 0.68/0.5, where 3 and 4 were tried in other forms."""


class VirtualShares:
    """Follows all partitions as time goes on; jobs are numbered as in the arrays given."""

    def __init__(self, tenant: Ints, gpus: Ints, partition_gpus: Ints) -> None:
        self._tenant, self._gpus = tenant, gpus
        self._free = partition_gpus.copy()
        self._all_gpus = int(partition_gpus.sum())
        self._queues: list[deque[tuple[int, float]]] = [deque() for _ in partition_gpus]
        self._running = np.zeros(len(tenant), dtype=bool)
        self._begin_s = np.full(len(tenant), np.inf)
        self._known_s = np.full(len(tenant), np.inf)
        self._over_s = np.full(len(tenant), np.inf)
        self._here = np.zeros(len(partition_gpus))
        self._there = np.zeros(len(partition_gpus))
        self._lead_s = np.zeros(len(partition_gpus))
        self._there_s = np.zeros(len(partition_gpus))
        self._is_worse = np.zeros(len(partition_gpus), dtype=bool)
        self._now_s = np.inf

    def grow(self, tenant: int, gpus: int) -> None:
        """Number one more job."""
        self._tenant, self._gpus = np.append(self._tenant, tenant), np.append(self._gpus, gpus)
        self._running = np.append(self._running, np.False_)
        self._begin_s = np.append(self._begin_s, np.inf)
        self._known_s = np.append(self._known_s, np.inf)
        self._over_s = np.append(self._over_s, np.inf)

    def submit(self, job: int, at_s: float) -> None:
        """Add a job to its tenant's queue."""
        tenant = self._tenant[job]
        self._queues[tenant].append((job, at_s))
        self._here[tenant] += 1
        self._there[tenant] += 1

    def end(self, jobs: Ints, now_s: float, duration_s: Floats) -> None:
        """Note jobs that have ended here, and what they needed on the GPUs they asked for."""
        self._known_s[jobs] = duration_s
        np.add.at(self._here, self._tenant[jobs], -1)
        # The next ``advance`` counts them as gone since the last one.
        np.add.at(self._lead_s, self._tenant[jobs], self._now_s - now_s)

    def advance(self, now_s: float, active: Ints, expected_s: Floats) -> None:
        """Let time pass; ``expected_s`` is what the active jobs need in all, as far as is known."""
        passed_s = max(0.0, now_s - self._now_s)
        self._now_s = now_s
        self._lead_s += (self._there - self._here) * passed_s
        self._there_s += self._there * passed_s
        running = np.flatnonzero(self._running)
        end_s = self._begin_s[running] + self._known_s[running]
        is_done = end_s <= now_s
        ended: dict[int, list[tuple[float, int]]] = {}
        if is_done.any():
            done, done_s = running[is_done], end_s[is_done]
            self._running[done] = False
            for job, at_s in zip(done.tolist(), done_s.tolist(), strict=True):
                ended.setdefault(int(self._tenant[job]), []).append((at_s, int(self._gpus[job])))
            # What was counted there until now, or until it was expected to end, is set right.
            over_s = np.minimum(self._over_s[done], now_s)
            np.add.at(self._lead_s, self._tenant[done], done_s - over_s)
            self._leave(done[self._over_s[done] > now_s], now_s)
        past = self._running[active] & (self._begin_s[active] + expected_s <= now_s)
        past &= self._over_s[active] > now_s
        if past.any():
            self._leave(active[past], now_s)
        for tenant, queue in enumerate(self._queues):
            if queue or tenant in ended:
                self._start(tenant, queue, sorted(ended.get(tenant, ())))

    def _leave(self, jobs: Ints, now_s: float) -> None:
        """Count jobs no longer as there."""
        self._over_s[jobs] = now_s
        np.add.at(self._there, self._tenant[jobs], -1)

    def _start(
        self, tenant: int, queue: deque[tuple[int, float]], ends: list[tuple[float, int]]
    ) -> None:
        """Start what waits, first in, first out, at the instants at which GPUs become free."""
        free, free_s = int(self._free[tenant]), 0.0
        while queue:
            job, submit_s = queue[0]
            while ends and free < self._gpus[job]:
                free_s, gpus = ends.pop(0)
                free += gpus
            if free < self._gpus[job]:
                break
            queue.popleft()
            free -= int(self._gpus[job])
            free_s = self._begin_s[job] = max(free_s, submit_s)
            self._running[job] = True
        self._free[tenant] = free + sum(gpus for _, gpus in ends)

    def is_behind(self, active: Ints, served_s: Floats) -> Flags:
        """Return which jobs are hardly ahead of there or lag, of tenants that will be worse off.

        A job that lags will end here that much later than there: a tenant will be worse off where
        that is more than its jobs have gained so far.
        """
        there_s = np.maximum(self._now_s - self._begin_s[active], 0.0)
        lag_s = there_s - served_s
        tenant = self._tenant[active]
        gained_s = self._lead_s.copy()
        np.add.at(gained_s, tenant, -lag_s)
        self._is_worse = gained_s < np.where(self._is_worse, MARGIN * self._there_s, 0.0) - 1e-9
        late_s = np.maximum(MIN_LAG_S, MIN_LAG_SHARE * there_s)
        is_there = self._begin_s[active] <= self._now_s
        is_behind = is_there & (lag_s >= -late_s) & self._is_worse[tenant]
        if int(self._gpus[active[is_behind]].sum()) > MAX_SHARE * self._all_gpus:
            is_behind = (lag_s > late_s) & (self._lead_s[tenant] < 0)
        return is_behind

    def worth(self, active: Ints) -> Floats:
        """Return what the weights of jobs are multiplied by, as of the last ``is_behind``."""
        return np.where(self._is_worse[self._tenant[active]], WORSE_WORTH, 1.0)
