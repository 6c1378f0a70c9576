"""First in, first out, and EASY backfill (Lifka, 1995) with true durations, event by event.

GPUs are counted and not placed, which favours these baselines.
"""

from __future__ import annotations

import heapq

import numpy as np

from costopt.optimize.rounds.gangs import Floats, Ints


class QueueSchedule:
    """The starts of rigid jobs on a number of GPUs. Jobs are in the order of submission."""

    def __init__(self, submit_s: Floats, duration_s: Floats, gpus: Ints, capacity: int) -> None:
        self._submit_s, self._duration_s, self._gpus = submit_s, duration_s, gpus
        self._free = capacity
        self._ends: list[tuple[float, int]] = []
        self._queue: list[int] = []
        self._start_s = np.full(len(submit_s), np.nan)

    def run(self, *, backfill: bool) -> Floats:
        """Return when each job starts."""
        arrived = 0
        while arrived < len(self._submit_s) or self._queue:
            coming = self._submit_s[arrived] if arrived < len(self._submit_s) else np.inf
            now_s = min(coming, self._ends[0][0] if self._ends else np.inf)
            while self._ends and self._ends[0][0] <= now_s:
                self._free += heapq.heappop(self._ends)[1]
            while arrived < len(self._submit_s) and self._submit_s[arrived] <= now_s:
                self._queue.append(arrived)
                arrived += 1
            while self._queue and self._gpus[self._queue[0]] <= self._free:
                self._start(self._queue.pop(0), now_s)
            if backfill and len(self._queue) > 1 and self._free:
                self._backfill(now_s)
        return self._start_s

    def _start(self, job: int, now_s: float) -> None:
        self._start_s[job] = now_s
        self._free -= int(self._gpus[job])
        heapq.heappush(self._ends, (now_s + self._duration_s[job], int(self._gpus[job])))

    def _backfill(self, now_s: float) -> None:
        """Start what delays the first of the queue by nothing: it ends before that one could start,
        or runs on GPUs that will be over then."""
        free, need, reserved_s = self._free, int(self._gpus[self._queue[0]]), np.inf
        for end_s, gpus in sorted(self._ends):
            free += gpus
            if free >= need:
                reserved_s = end_s
                break
        extra = free - need
        waiting = np.array(self._queue[1:], dtype=np.int64)
        ends_early = now_s + self._duration_s[waiting] <= reserved_s
        asked = self._gpus[waiting]
        possible = (asked <= self._free) & (ends_early | (asked <= extra))
        started = set()
        for position in np.flatnonzero(possible):
            job = int(waiting[position])
            if self._gpus[job] > self._free:
                continue
            if not ends_early[position]:
                if self._gpus[job] > extra:
                    continue
                extra -= int(self._gpus[job])
            self._start(job, now_s)
            started.add(job)
        self._queue = [job for job in self._queue if job not in started]
