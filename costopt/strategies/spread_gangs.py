"""Spot gangs with nodes in several zones of a region, all of one instance type.

Where no zone has room for a whole gang, two may have it together. It then costs what its parts do
and the traffic between them, and is lost with the first of them. A job allows it by saying how much
its gang sends from zone to zone (``Resources.zone_traffic_gib``).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from costopt.domain.market import Pool
from costopt.domain.storage import ZONE_USD_PER_GIB
from costopt.domain.view import JobView, Target, View
from costopt.strategies.gang_options import GangOption, gang_options
from costopt.strategies.remaining_time import is_running

MAX_ZONE_USD_PER_GIB = max(ZONE_USD_PER_GIB.values())
"""Of any provider: one whose price is not listed is not taken to be cheaper."""


def spread_options(view: View, job_view: JobView) -> Iterator[GangOption]:
    """Yield a spread for each size, region and instance type of which several zones are offered.

    It is ``free`` where its zones have room together and no zone has it alone for as little, and
    ``running`` where the job runs on it. Otherwise it stands for what may come: halves in two
    zones.
    """
    if job_view.job.resources.zone_traffic_gib is None:
        return
    room = zone_room(view, job_view)
    zones: dict[tuple[str, int], list[GangOption]] = defaultdict(list)
    for option in gang_options(view, job_view):
        if option.nodes > 1 and option.pool in room:
            zones[str(replace(option.pool, zone="")), option.nodes].append(option)
    for each in zones.values():
        if len(each) > 1:
            yield _spread(view, job_view, each, room)


def spread_of(view: View, job_view: JobView, targets: Sequence[Target]) -> GangOption | None:
    """Return the spread that these targets are; None where they are none, or are unknown."""
    nodes, wanted = sum(target.nodes for target in targets), {target.pool for target in targets}
    zones = [
        option
        for option in gang_options(view, job_view)
        if option.nodes == nodes and option.pool in wanted
    ]
    kinds = {replace(pool, zone="") for pool in wanted}
    spot = all(pool.capacity_type.is_interruptible for pool in wanted)
    if len(targets) < 2 or len(kinds) > 1 or len(zones) < len(targets) or not spot:
        return None
    return _of_parts(view, job_view, zones, {t.pool: t.nodes for t in targets})


def zone_room(view: View, job_view: JobView) -> Mapping[Pool, float]:
    """Return, by spot pool in which the job may have a gang, how many nodes it could have there."""
    here = Counter(node.pool for node in job_view.nodes)
    usable = {option.pool for option in gang_options(view, job_view) if option.nodes > 1}
    return {
        offer.pool: here[offer.pool]
        + (math.inf if offer.nodes_available is None else offer.nodes_available)
        for offer in view.offers
        if offer.pool in usable and offer.pool.capacity_type.is_interruptible
    }


def _spread(
    view: View, job_view: JobView, zones: Sequence[GangOption], room: Mapping[Pool, float]
) -> GangOption:
    nodes = zones[0].nodes
    here = Counter(node.pool for node in job_view.nodes)
    held = {zone.pool: here[zone.pool] for zone in zones if here[zone.pool]}
    if len(held) > 1 and sum(held.values()) == nodes == len(job_view.nodes):
        return _of_parts(view, job_view, zones, held)
    short = [zone for zone in zones if not zone.free]
    # Nodes that run stay, and the fewer zones, the fewer ends.
    short.sort(key=lambda z: (-here[z.pool], -room[z.pool], z.score_usd_per_hour, str(z.pool)))
    parts = dict(_filled(nodes, ((zone.pool, room[zone.pool]) for zone in short)))
    if sum(parts.values()) < nodes:
        cheapest = sorted(zones, key=lambda zone: (zone.score_usd_per_hour, str(zone.pool)))[:2]
        halves = zip(cheapest, ((nodes + 1) // 2, nodes // 2), strict=True)
        return _of_parts(view, job_view, zones, {zone.pool: half for zone, half in halves})
    spread = _of_parts(view, job_view, zones, parts)
    alone = min((z.score_usd_per_hour for z in zones if z.free), default=math.inf)
    return replace(spread, free=spread.score_usd_per_hour < alone)


def _filled(nodes: int, rooms: Iterable[tuple[Pool, float]]) -> Iterator[tuple[Pool, int]]:
    for pool, room in rooms:
        part = int(min(nodes, room))
        nodes -= part
        if part:
            yield pool, part


def _of_parts(
    view: View, job_view: JobView, zones: Iterable[GangOption], parts: Mapping[Pool, int]
) -> GangOption:
    """The gang with so many nodes in each pool, of which ``zones`` are the whole gangs."""
    targets = tuple(Target(*part) for part in sorted(parts.items(), key=lambda p: (-p[1], p[0])))
    whole = {zone.pool: zone for zone in zones}
    first = whole[targets[0].pool]
    shares = [(whole[target.pool], target.nodes / first.nodes) for target in targets]
    gib_per_s = (job_view.job.resources.zone_traffic_gib or 0.0) * first.units_per_s
    traffic_usd_per_hour = 3600 * gib_per_s * MAX_ZONE_USD_PER_GIB
    running = is_running(job_view, targets)
    return replace(
        first,
        usd_per_hour=sum(zone.usd_per_hour * share for zone, share in shares)
        + traffic_usd_per_hour,
        score_usd_per_hour=sum(zone.score_usd_per_hour * share for zone, share in shares)
        + view.policy.objective.usd * traffic_usd_per_hour,
        start_s=max(zone.start_s for zone, _ in shares),
        free=running,
        running=running,
        parts=targets,
    )
