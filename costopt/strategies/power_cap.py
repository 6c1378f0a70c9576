"""How a decision's power caps slow the gang that it wants."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from costopt.domain.view import Target, View
from costopt.strategies.option import GangOption


def without_power_caps(targets: Iterable[Target]) -> tuple[Target, ...]:
    """The same gang without power limits."""
    return tuple(replace(target, power_cap_w=None) for target in targets)


def with_power_caps(view: View, option: GangOption, targets: Iterable[Target]) -> GangOption:
    """The option at the speed that the targets' power caps leave; nothing else changes."""
    share = min((_speed(view, target) for target in targets), default=1.0)
    if share == 1.0:
        return option
    stretches = tuple(replace(s, units_per_s=s.units_per_s * share) for s in option.stretches)
    return replace(option, units_per_s=option.units_per_s * share, stretches=stretches)


def _speed(view: View, target: Target) -> float:
    """A cap that nobody measured is never set."""
    power = view.powers.get(target.pool)
    caps = () if power is None or target.power_cap_w is None else power.caps
    return next((cap.speed for cap in caps if cap.cap_w == target.power_cap_w), 1.0)
