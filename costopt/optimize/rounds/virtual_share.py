"""Beside the real cluster each tenant's own partition, on which its jobs run first in, first out.

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
        self._queues: list[deque[int]] = [deque() for _ in partition_gpus]
        self._running = np.zeros(len(tenant), dtype=bool)
        self._is_over = np.zeros(len(tenant), dtype=bool)
        self._served_s = np.zeros(len(tenant))
        self._known_s = np.full(len(tenant), np.inf)
        self._here = np.zeros(len(partition_gpus))
        self._there = np.zeros(len(partition_gpus))
        self._lead_s = np.zeros(len(partition_gpus))
        self._there_s = np.zeros(len(partition_gpus))
        self._is_worse = np.zeros(len(partition_gpus), dtype=bool)
        self._now_s = 0.0

    def grow(self, tenant: int, gpus: int) -> None:
        """Number one more job."""
        self._tenant, self._gpus = np.append(self._tenant, tenant), np.append(self._gpus, gpus)
        self._running = np.append(self._running, np.False_)
        self._is_over = np.append(self._is_over, np.False_)
        self._served_s = np.append(self._served_s, 0.0)
        self._known_s = np.append(self._known_s, np.inf)

    def submit(self, job: int) -> None:
        """Add a job to its tenant's queue."""
        tenant = self._tenant[job]
        self._queues[tenant].append(job)
        self._here[tenant] += 1
        self._there[tenant] += 1

    def end(self, jobs: Ints, duration_s: Floats) -> None:
        """Note jobs that have ended here, and what they needed on the GPUs they asked for."""
        self._known_s[jobs] = duration_s
        np.add.at(self._here, self._tenant[jobs], -1)

    def advance(self, now_s: float, active: Ints, expected_s: Floats) -> None:
        """Let time pass; ``expected_s`` is what the active jobs need in all, as far as is known."""
        passed_s = now_s - self._now_s
        self._now_s = now_s
        self._lead_s += (self._there - self._here) * passed_s
        self._there_s += self._there * passed_s
        running = np.flatnonzero(self._running)
        self._served_s[running] += passed_s
        done = running[self._served_s[running] >= self._known_s[running]]
        self._running[done] = False
        np.add.at(self._free, self._tenant[done], self._gpus[done])
        past = active[self._running[active] & (self._served_s[active] >= expected_s)]
        for over in (done, past):
            new = over[~self._is_over[over]]
            self._is_over[new] = True
            np.add.at(self._there, self._tenant[new], -1)
        for tenant, queue in enumerate(self._queues):
            while queue and self._gpus[queue[0]] <= self._free[tenant]:
                job = queue.popleft()
                self._free[tenant] -= self._gpus[job]
                self._running[job] = True

    def is_behind(self, active: Ints, served_s: Floats) -> Flags:
        """Return which jobs have had less than there, of the tenants that will be worse off.

        A job that lags will end here that much later than there: a tenant will be worse off where
        that is more than its jobs have gained so far.
        """
        lag_s = self._served_s[active] - served_s
        tenant = self._tenant[active]
        gained_s = self._lead_s.copy()
        np.add.at(gained_s, tenant, -lag_s)
        self._is_worse = gained_s < np.where(self._is_worse, MARGIN * self._there_s, 0.0) - 1e-9
        has_begun = self._running[active] | self._is_over[active]
        is_behind = has_begun & (lag_s >= 0) & self._is_worse[tenant]
        if int(self._gpus[active[is_behind]].sum()) > MAX_SHARE * self._all_gpus:
            late_s = np.maximum(MIN_LAG_S, MIN_LAG_SHARE * self._served_s[active])
            is_behind = (lag_s > late_s) & (self._lead_s[tenant] < 0)
        return is_behind

    def worth(self, active: Ints) -> Floats:
        """Return what the weights of jobs are multiplied by, as of the last ``is_behind``."""
        return np.where(self._is_worse[self._tenant[active]], WORSE_WORTH, 1.0)
