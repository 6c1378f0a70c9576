"""Which limits a sweep tries, on the curves of measured GPUs and on any other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costopt.domain.estimate import Basis
from costopt.domain.power import NodePower
from costopt.domain.power_sweep import MAX_LIMITS, PowerProbe, measured_caps, next_limit_w
from tests.support.power_curves import (
    GPUS,
    SPEED_FLOOR,
    Curve,
    best_energy,
    energy_at,
    measured_curves,
    median_curve,
    point_at,
)

POWER = NodePower(500, 1000, 1.0, 400, Basis.MODELLED, 0.1, "test")


def sweep(
    lowest_w: float, highest_w: float, act: Callable[[float], tuple[float, float]]
) -> list[PowerProbe]:
    """``act`` gives speed and draw under a limit."""
    speed, watts = act(highest_w)
    probes = [PowerProbe(None, speed, watts, watts, lowest_w, highest_w)]
    while (limit_w := next_limit_w(probes)) is not None:
        assert lowest_w <= limit_w < highest_w
        assert limit_w == round(limit_w)
        probes.append(PowerProbe(limit_w, *act(limit_w), 0.0, lowest_w, highest_w))
    assert len(probes) <= 1 + MAX_LIMITS
    return probes


def excess(curve: Curve) -> float:
    """How much more energy the best of the swept limits takes than the best of all."""
    probes = sweep(curve[0][0], curve[-1][0], lambda limit_w: point_at(curve, limit_w)[1:])
    kept = [p for p in probes if p.units_per_s >= SPEED_FLOOR * probes[0].units_per_s]
    found = min(energy_at(curve, p.cap_w or curve[-1][0]) for p in kept)
    return found / best_energy(curve) - 1


@pytest.mark.parametrize("gpu", GPUS)
def test_four_limits_find_the_best_at_95_per_cent_of_the_speed(gpu: str) -> None:
    curves = measured_curves(gpu)
    assert excess(median_curve(curves)) <= 0.02
    near = sum(excess(curve) <= 0.02 for curve in curves)
    assert near >= 0.75 * len(curves), "single runs scatter by more than a limit changes them"


@given(
    st.floats(50, 200), st.floats(1, 600), st.floats(0.05, 1.5),
    st.lists(st.floats(0.2, 1.3), min_size=5, max_size=5),
)  # fmt: skip
def test_any_sweep_ends_within_its_range(
    lowest_w: float, more_w: float, drawn: float, speeds: list[float]
) -> None:
    highest_w = lowest_w + more_w
    left = iter(speeds)
    probes = sweep(lowest_w, highest_w, lambda limit_w: (next(left), drawn * limit_w))
    caps = measured_caps(probes, POWER, "test")
    assert [cap.cap_w for cap in caps] == sorted({cap.cap_w for cap in caps})
    assert all(cap.busy_w < 1000 * max(cap.speed, 1.3) and cap.speed <= 1 for cap in caps)


def test_only_limits_that_save_energy_become_caps() -> None:
    probes = [
        PowerProbe(None, 2.0, 800.0, 300.0, 100.0, 300.0),
        PowerProbe(250.0, 1.9, 700.0, 0.0, 100.0, 300.0),
        PowerProbe(150.0, 0.8, 500.0, 0.0, 100.0, 300.0),
    ]
    (cap,) = measured_caps(probes, POWER, "test")
    assert (cap.cap_w, cap.speed, cap.busy_w) == (250.0, 0.95, 875.0)


def test_a_gpu_that_draws_little_is_limited_below_that() -> None:
    probes = sweep(100.0, 400.0, lambda limit_w: (1.0, min(limit_w, 200.0)))
    assert probes[1].cap_w == 180.0
    assert probes[-1].cap_w == 100.0
