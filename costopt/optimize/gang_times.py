"""The times of gangs that do not depend on where they run: starts, saves, lost shard groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costopt.domain.job import Job
from costopt.domain.market import InstanceType
from costopt.domain.storage import REFORM_S
from costopt.optimize.rates import Array


@dataclass(frozen=True, slots=True)
class GangTimes:
    """Seconds by gang, shape (gangs,).

    A start takes ``overhead_s``, besides waits and transfers, of which ``restore_s`` to load a
    checkpoint, where there is one. A save stops the training for
    ``save_s`` and is durable after ``persist_s``. Of several ``groups``, those that an interruption
    does not take hold the state, and no work is lost. ``lag_s`` is what it costs the whole gang
    besides: the work since the last save began that was not durable yet, or a pause of the others.
    """

    overhead_s: Array
    restore_s: Array
    save_s: Array
    persist_s: Array
    groups: Array
    lag_s: Array

    @classmethod
    def of(cls, gangs: Sequence[tuple[InstanceType, int]], job: Job) -> Self:
        """Return the times of gangs of so many nodes of a machine."""
        jobs = [job.on_gang(machine, nodes) for machine, nodes in gangs]
        save_s = np.array([each.checkpoint.save_s for each in jobs], dtype=float)
        persist_s = np.array([each.checkpoint.durable_s for each in jobs], dtype=float)
        groups = np.array([job.groups_in(*gang) for gang in gangs], dtype=float)
        return cls(
            overhead_s=np.array([each.overhead_s for each in jobs], dtype=float),
            restore_s=np.array([each.checkpoint.restore_s for each in jobs], dtype=float),
            save_s=save_s,
            persist_s=persist_s,
            groups=groups,
            lag_s=np.where(groups > 1, REFORM_S, persist_s - save_s),
        )

    def take(self, gangs: NDArray[np.int64]) -> Self:
        """Return the times of the gangs with these numbers, in this order."""
        return type(self)(*(getattr(self, each.name)[gangs] for each in fields(self)))
