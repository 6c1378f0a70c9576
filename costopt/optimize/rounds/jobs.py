"""What a policy sees of the jobs that are waiting or running, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from costopt.optimize.rounds.gangs import Flags, Floats, GangTable, Ints


@dataclass(frozen=True, slots=True, eq=False)
class RoundJobs:
    """The jobs of a round, one value each.

    ``held`` GPUs run a job now, 0 where it waits; ``held_s`` is how long its gang has been as it
    is. ``served_s`` is the work done and ``remaining_s`` what is known or expected to remain, in
    seconds on the GPUs asked for; ``spread`` is the standard deviation of its logarithm, 0 where it
    is declared. A higher ``index`` is served first. ``is_behind``: the job has had less than in its
    tenant's own partition, or hardly more, and the tenant will be worse off than there.
    ``price_cap`` is what a GPU-hour costs elsewhere, in the unit of weights: no job is made smaller
    where that is cheaper.
    """

    gangs: GangTable
    weight: Floats
    held: Ints
    held_s: Floats
    served_s: Floats
    remaining_s: Floats
    spread: Floats
    index: Floats
    submit_s: Floats
    is_behind: Flags
    price_cap: Floats


class RoundPolicy(Protocol):
    """Decides a round: the GPUs of each job, 0 for those that wait, at most ``gpus`` in all.

    For ``protected_s`` a gang is left as it is where there is any other way.
    """

    @property
    def protected_s(self) -> float: ...

    def decide(self, jobs: RoundJobs, gpus: int) -> tuple[float, Ints]:
        """Return the price of a GPU-hour, and the sizes, each a gang of the job or 0."""
        ...

    def admit(self, jobs: RoundJobs, gpus: int, price: float) -> Ints:
        """Return the sizes once a job was submitted between two rounds, at the last one's price.

        Jobs that wait may start; there is no other reason to change a gang.
        """
        ...
