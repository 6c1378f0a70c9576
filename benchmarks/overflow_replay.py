"""Owned GPUs with spot as overflow: `priced`, and the waiting rules of Starburst (ATC'24).

A job that overflows runs on spot until its end, on the GPUs it asked for. Spot is the cheapest
available zone of a record; leaving a zone costs every job on it a start, during which it pays.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

import numpy as np

from costopt.backtesting.fleet.replay import FleetReplay
from costopt.optimize.rounds.gangs import Flags, Floats, Ints
from costopt.optimize.rounds.jobs import RoundJobs
from costopt.optimize.rounds.overflow import MIN_USD, Queue
from costopt.optimize.rounds.sizes import first_fit
from costopt.workload.workload import Workload


@dataclass(frozen=True, slots=True, eq=False)
class SpotRecord:
    """Work done and dollars paid by one GPU that is always on spot, as time goes on.

    ``work_s`` and ``usd`` are totals at ``at_s``; after the record's end it begins again.
    """

    at_s: Floats
    work_s: Floats
    usd: Floats
    start_s: float

    @classmethod
    def of(cls, step_s: float, usd_per_hour: Floats, start_s: float) -> SpotRecord:
        """Return the record of prices (steps × zones), NaN where a zone has no capacity."""
        count = len(usd_per_hour)
        work, usd = np.zeros(count), np.zeros(count)
        zone, lost_s = -1, 0.0
        for step, prices in enumerate(usd_per_hour):
            if np.isnan(prices).all():
                zone = -1
                continue
            if zone < 0 or np.isnan(prices[zone]):
                zone, lost_s = int(np.nanargmin(prices)), start_s
            work[step] = max(0.0, step_s - lost_s)
            lost_s = max(0.0, lost_s - step_s)
            usd[step] = prices[zone] * step_s / 3600
        at_s: Floats = np.arange(count + 1, dtype=np.float64) * step_s
        return cls(at_s, _totals(work), _totals(usd), start_s)

    @property
    def usd_per_work_hour(self) -> float:
        """The mean price of an hour's work, what interruptions cost included."""
        return float(self.usd[-1] / self.work_s[-1] * 3600)

    def run(self, begin_s: float, needed_s: float) -> tuple[float, float]:
        """Return when work that starts now ends, and its dollars by GPU."""
        begun_s = begin_s + self.start_s
        whole, rest = divmod(self._at(begun_s, self.work_s) + needed_s, float(self.work_s[-1]))
        # The first instant at which so much is done: nothing is while there is no capacity.
        step = max(1, int(np.searchsorted(self.work_s, rest)))
        steps = slice(step - 1, step + 1)
        reached_s = float(np.interp(rest, self.work_s[steps], self.at_s[steps]))
        end_s = whole * float(self.at_s[-1]) + reached_s
        return end_s, self._at(end_s, self.usd) - self._at(begin_s, self.usd)

    def _at(self, now_s: float, totals: Floats) -> float:
        whole, rest = divmod(now_s, float(self.at_s[-1]))
        return whole * float(totals[-1]) + float(np.interp(rest, self.at_s, totals))


class OverflowReplay(FleetReplay):
    """A replay in which jobs that wait may go to spot; ``worth_usd`` is an hour until an end.

    Jobs that have less than they asked for leave as ``Queue`` says, what is expected to be lost on
    spot counted, and none is made smaller where its GPUs on spot would be cheaper.
    """

    spot: SpotRecord
    worth_usd: float = 1.0
    overflow_usd: float = 0.0
    overflow_jobs: int = 0

    def _jobs(self, active: Ints, served_s: Floats, left_s: Floats, behind: Flags) -> RoundJobs:
        cap = self.spot.usd_per_work_hour / max(self.worth_usd, MIN_USD)
        jobs = super()._jobs(active, served_s, left_s, behind)
        return replace(jobs, price_cap=np.full(len(active), cap))

    def _round(self) -> bool:
        is_settled = super()._round()
        waiting = self._active[self._held[self._active] < self._work.gpus[self._active]]
        going = waiting[self._queue(waiting).leaving(self._gpus)]
        for job in going:
            self._end_s[job], usd = self.spot.run(self._now_s, self._left_s[job])
            if np.isnan(self._first_s[job]):
                self._first_s[job] = self._now_s
            self.overflow_usd += float(usd) * int(self._work.gpus[job])
            self.overflow_jobs += 1
        if len(going):
            self._held[going] = 0
            if self._placement is not None:
                self._placement.change(((int(job), 0) for job in going), frozenset())
            if self._shares is not None:
                self._shares.end(going, self._now_s, self._work.duration_s[going])
            self._active = np.setdiff1d(self._active, going)
        return is_settled and not len(going)

    def _queue(self, waiting: Ints) -> Queue:
        gpus, start_s = self._work.gpus[waiting], self.spot.start_s
        weight = self.worth_usd * self._weight[waiting]
        served_s, remaining_s = self._served_and_remaining_s(waiting)
        needed_s = gpus * (np.maximum(remaining_s, 60.0) + start_s)
        usd = (self.spot.usd_per_work_hour * needed_s + weight * start_s) / 3600
        waited_s = self._now_s - self._work.submit_s[waiting] - served_s
        return Queue(weight, waited_s, needed_s, usd)


def replay_starburst(
    workload: Workload, gpus: int, spot: SpotRecord, wait_s: Floats
) -> tuple[Floats, float]:
    """Return when each job ends and the dollars of spot, under a waiting rule.

    Jobs start in the order of submission, passing over what does not fit; one that has waited its
    ``wait_s`` goes to spot.
    """
    count = len(workload.jobs)
    end_s, usd, free = np.zeros(count), 0.0, gpus
    events = [(float(at_s), 0, job) for job, at_s in enumerate(workload.submit_s)]
    heapq.heapify(events)
    queue: Ints = np.zeros(0, dtype=np.int64)
    while events:
        now_s, kind, job = heapq.heappop(events)
        if kind == 0:
            queue = np.append(queue, job)
            heapq.heappush(events, (now_s + float(wait_s[job]), 2, job))
        elif kind == 1:
            free += int(workload.gpus[job])
        elif job in queue:
            queue = queue[queue != job]
            end_s[job], each_usd = spot.run(now_s, float(workload.duration_s[job]))
            usd += each_usd * int(workload.gpus[job])
        if kind == 2 or not len(queue):
            continue
        served = first_fit(np.arange(len(queue)), workload.gpus[queue], free)
        for started in queue[served]:
            end_s[started] = now_s + workload.duration_s[started]
            free -= int(workload.gpus[started])
            heapq.heappush(events, (float(end_s[started]), 1, int(started)))
        queue = queue[~served]
    return end_s, usd


def _totals(steps: Floats) -> Floats:
    return np.concatenate([[0.0], steps.cumsum()])
