"""Which jobs of a queue go to spot: who saves most waiting per dollar, one after the other.

A job that leaves saves itself the time of the work ahead of it, and each job behind it the time of
its own work. Those who come later are unknown: as much again as it has waited is expected. Once one
has left, the others have less to save: each that goes is worth what spot costs beside those that
have gone before it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costopt.optimize.rounds.gangs import Floats, Ints

MIN_USD = 1e-9
"""What spot costs at least, so that there is a ratio where it costs nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Queue:
    """The jobs that have less than they asked for of owned GPUs that are all busy, one value each.

    ``weight`` is what an hour until the end is worth, in dollars, and ``waited_s`` how much later
    than without a wait the job is by now. ``needed_s`` are GPU-seconds. ``spot_usd`` is what the
    rest costs on spot, with what it ends later there than here without a wait; infinite where the
    job cannot or should not go.
    """

    weight: Floats
    waited_s: Floats
    needed_s: Floats
    spot_usd: Floats

    def leaving(self, gpus: int) -> Ints:
        """Return the jobs for which leaving the queue of ``gpus`` GPUs is worth spot, in order."""
        stay = np.argsort(self.needed_s / np.maximum(self.weight, MIN_USD), kind="stable")
        going: list[int] = []
        while len(stay):
            worth = self._saved_usd(stay, gpus) / np.maximum(self.spot_usd[stay], MIN_USD)
            best = int(np.argmax(worth))
            if worth[best] <= 1:
                break
            going.append(int(stay[best]))
            stay = np.delete(stay, best)
        return np.array(going, dtype=np.int64)

    def _saved_usd(self, stay: Ints, gpus: int) -> Floats:
        """What each of them, in the order in which they are served, saves by leaving the others."""
        weight, needed_s = self.weight[stay], self.needed_s[stay]
        ahead_s = needed_s.cumsum() - needed_s
        behind = weight[::-1].cumsum()[::-1] - weight
        own_s = np.maximum(self.waited_s[stay], 0.0) + ahead_s / gpus
        return (weight * own_s + behind * needed_s / gpus) / 3600
