"""What it takes to move data from where they lie to where a job runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Transfer:
    """Moving data from one region to another: the list price, and the speed per node.

    ``gbps`` is in gigabits per second, None where nobody has measured it: the node's own network
    then counts, and no time at all where that is unknown too.
    """

    usd_per_gib: float
    gbps: float | None
    source: str
