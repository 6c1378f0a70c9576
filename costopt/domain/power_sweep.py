"""A sweep of power limits: which limit to measure next, and the power caps that follow.

The search looks for the limit at which the job keeps 95 % of its speed: lower limits save more
energy, until the loss of speed outweighs them. On the 228 configurations of five GPU models that
Zeus (NSDI 2023) and Perseus (SOSP 2024) measured, four limits find one within 2 % of the least
energy at that speed in 188, and in 120 of the 128 whose speed only falls with the limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costopt.domain.power import NodePower, PowerCap

MAX_LIMITS = 4
SPEED_FLOOR = 0.95
SPEED_TARGET = 0.953
"""Slightly above the floor, so that the last limit is not just below it."""
FIRST_SHARE = 0.9
"""Of what a GPU draws without a limit: a limit that it does not reach changes nothing."""
MIN_STEP_SHARE, MAX_STEP_SHARE = 0.05, 0.3
MIN_BRACKET_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class PowerProbe:
    """What a gang did for some minutes under one limit of each GPU; None: without ours.

    ``node_w`` is the mean of its nodes at the plug, ``gpu_w`` what their meters read per GPU, of
    which it draws no more. ``min_w`` is the lowest limit that every GPU allows, ``limit_w`` the
    lowest in force before.
    """

    cap_w: float | None
    units_per_s: float
    node_w: float
    gpu_w: float
    min_w: float
    limit_w: float


def next_limit_w(probes: Sequence[PowerProbe]) -> float | None:
    """Return the limit to measure next, in whole watts; None where the sweep is complete.

    ``probes`` begins with the one without a limit. No limit is below ``min_w``.
    """
    base = probes[0]
    if len(probes) > MAX_LIMITS:
        return None
    speeds = {p.cap_w: p.units_per_s / base.units_per_s for p in probes if p.cap_w is not None}
    drawn_w = min(base.gpu_w, base.limit_w)
    wanted = _wanted_w(speeds, drawn_w, base.limit_w) if speeds else FIRST_SHARE * drawn_w
    lowest_w = max(probe.min_w for probe in probes)
    limit_w = float(round(max(wanted, lowest_w)))
    limit_w = limit_w if limit_w >= lowest_w else limit_w + 1.0
    return None if limit_w in speeds or limit_w >= base.limit_w else limit_w


def _wanted_w(speeds: Mapping[float, float], drawn_w: float, limit_w: float) -> float:
    """Return where the speed falls to the target, between limits that are known or below them."""
    known = {**speeds, limit_w: 1.0}
    low = min(watts for watts, speed in known.items() if speed >= SPEED_FLOOR)
    slower = [watts for watts in known if watts < low]
    if slower:
        slow = max(slower)
        gained = known[low] - known[slow]
        share = (SPEED_TARGET - known[slow]) / gained if gained > 0 else 0.5
        share = min(max(share, MIN_BRACKET_SHARE), 1.0 - MIN_BRACKET_SHARE)
        return slow + share * (low - slow)
    above = min(watts for watts in known if watts > low)
    slope = (known[above] - known[low]) / (above - low)
    step = (known[low] - SPEED_TARGET) / slope if slope > 0 else drawn_w
    return low - min(max(step, MIN_STEP_SHARE * drawn_w), MAX_STEP_SHARE * drawn_w)


def measured_caps(
    probes: Sequence[PowerProbe], power: NodePower, source: str
) -> tuple[PowerCap, ...]:
    """Return the limits under which the node took less energy per unit of work, lowest first."""
    base = probes[0]
    caps: list[PowerCap] = []
    for probe in probes[1:]:
        speed, drawn = probe.units_per_s / base.units_per_s, probe.node_w / base.node_w
        if probe.cap_w is not None and drawn < speed:
            caps.append(PowerCap(probe.cap_w, min(speed, 1.0), power.busy_w * drawn, source))
    return tuple(sorted(caps, key=lambda cap: cap.cap_w))
