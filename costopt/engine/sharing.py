"""The order in which jobs are served where there is not room for all. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costopt.engine.tally import Limit

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """What a job wants to hold: ``load`` by limit. ``order`` tells equals apart."""

    job: str
    tenant: str
    weight: float
    priority: int
    runs: bool
    order: int
    load: Mapping[Limit, float]


def share_capacity(
    wishes: Sequence[ResourceRequest], most: Mapping[Limit, float], overdue: frozenset[str]
) -> dict[str, str]:
    """The jobs that are held back, with the reason; the others fit together.

    Jobs are served one after the other, each whole or not at all. The next one is always of the
    tenant with the least weighted dominant share: its largest part of any limit, over its weight
    (Ghodsi et al., Dominant Resource Fairness, NSDI 2011), ``overdue`` tenants before all others.
    Within a tenant higher priorities go first, then what runs already. A job that no limit would
    ever leave room for is not held here: the guards tell it why. A reason tells nothing of others.
    """
    used = dict.fromkeys(most, 0.0)
    if _fits(_sum(wishes), used, most) is None:
        return {}
    queues: dict[str, list[ResourceRequest]] = {}
    for wish in sorted(wishes, key=_rank):
        queues.setdefault(wish.tenant, []).append(wish)
    has: dict[str, dict[Limit, float]] = {tenant: {} for tenant in queues}
    held: dict[str, str] = {}
    while queues:
        tenant = min(queues, key=lambda t: _turn(t, queues[t][0], has[t], most, overdue))
        wish = queues[tenant].pop(0)
        if not queues[tenant]:
            del queues[tenant]
        full = _fits(wish.load, used, most)
        if full is None:
            for limit, amount in wish.load.items():
                used[limit] += amount
                has[tenant][limit] = has[tenant].get(limit, 0.0) + amount
        elif _fits(wish.load, {}, most) is None:
            name, unit = full
            held[wish.job] = (
                f"waits for room: quota {name} allows {most[full]:g} {unit} to all that share it, "
                f"and it needs {wish.load[full]:g}"
            )
    return held


def _turn(
    tenant: str,
    first: ResourceRequest,
    has: Mapping[Limit, float],
    most: Mapping[Limit, float],
    overdue: frozenset[str],
) -> tuple[bool, float, bool, int, str]:
    dominant = max((amount / most[limit] for limit, amount in has.items()), default=0.0)
    late = tenant in overdue and not has
    return not late, dominant / first.weight, not first.runs, -first.priority, tenant


def _rank(wish: ResourceRequest) -> tuple[int, bool, int]:
    return -wish.priority, not wish.runs, wish.order


def _fits(
    load: Mapping[Limit, float], used: Mapping[Limit, float], most: Mapping[Limit, float]
) -> Limit | None:
    """The first limit that the load would exceed, or None."""
    for limit, amount in load.items():
        if used.get(limit, 0.0) + amount > most[limit] * (1 + ROUNDING):
            return limit
    return None


def _sum(wishes: Sequence[ResourceRequest]) -> dict[Limit, float]:
    total: dict[Limit, float] = {}
    for wish in wishes:
        for limit, amount in wish.load.items():
            total[limit] = total.get(limit, 0.0) + amount
    return total
