"""Policies that run each job on the GPUs it asked for, or preempt it: baselines of `priced`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costopt.optimize.rounds.gangs import Flags, Floats, Ints
from costopt.optimize.rounds.jobs import RoundJobs
from costopt.optimize.rounds.sizes import first_fit

PROTECTED_S = 300.0
"""No preemption in the first minutes of a gang: a restart would cost more than it gains."""
SERVICE_BOUNDS_GPU_S = (3_600.0, 36_000.0)
"""Between the queues of attained service, as Tiresias (NSDI'19) has two of them."""


@dataclass(frozen=True, slots=True)
class RigidPolicy:
    """Serves in one order. ``by`` is attained-service, or index: Gittins, or SRPT if declared."""

    by: str
    protected_s: float = PROTECTED_S

    def decide(self, jobs: RoundJobs, gpus: int) -> tuple[float, Ints]:
        """Return no price and the GPUs asked for by those served, first the protected ones."""
        protected = (jobs.held > 0) & (jobs.held_s < self.protected_s)
        return 0.0, self._serve(jobs, gpus, protected)

    def admit(self, jobs: RoundJobs, gpus: int, price: float) -> Ints:  # noqa: ARG002 - no price
        """Return the sizes with those that wait on idle GPUs, in the order of a round."""
        return self._serve(jobs, gpus, jobs.held > 0)

    def _serve(self, jobs: RoundJobs, gpus: int, first: Flags) -> Ints:
        asked, _ = jobs.gangs.pick(jobs.gangs.asked)
        order = np.lexsort((jobs.submit_s, self._rank(jobs, asked), ~first))
        return np.where(first_fit(order, asked, gpus), asked, 0)

    def _rank(self, jobs: RoundJobs, asked: Ints) -> Floats:
        """The lowest is served first."""
        if self.by == "index":
            return -jobs.weight * jobs.index / asked
        queue = np.searchsorted(np.array(SERVICE_BOUNDS_GPU_S), jobs.served_s * asked)
        return queue.astype(np.float64)
