"""A sweep of power limits: when one is allowed, what is recorded of it, and the plans after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from costopt.domain.estimate import Basis
from costopt.domain.events import PowerLimitProbed, PowerLimitReported
from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.domain.policy import (
    CarbonSignal,
    Limits,
    Objective,
    ObjectiveTerm,
    Policy,
    StrategySpec,
)
from costopt.domain.power import NodePower, PowerCap
from costopt.domain.runtime import PowerProbeRecord
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, Scene, always, task
from tests.support.forwarding import Forwarding
from tests.support.power_curves import QUADRO_RTX_6000, best_energy, energy_at, point_at

HIGHEST_W, LOWEST_W = 260.0, 120.0
SWEEPS = Limits(power_caps=True, power_sweep=True)
POWER = NodePower(
    80, 300, 1.0, 400, Basis.MODELLED, 0.1, "test", cpu_w=40.0, other_w=10.0, overhead=1.1
)


class UncappedPowers:
    """No caps of this GPU were ever measured, or those in ``caps``."""

    def __init__(self, *caps: PowerCap) -> None:
        self._caps = caps

    def node_power(
        self, pool: Pool, carbon_signal: CarbonSignal = CarbonSignal.AVERAGE
    ) -> NodePower | None:
        return replace(POWER, caps=self._caps)


class Probing(Forwarding):
    """A runtime whose nodes complete each probe by the next tick, as the curve has it.

    ``change`` alters what they report.
    """

    def __init__(self, inner: Any, scene: Scene) -> None:
        super().__init__(inner)
        self._scene = scene
        self.asked: list[tuple[int, float | None]] = []
        self.change: Callable[[PowerProbeRecord], PowerProbeRecord] = lambda record: record

    def probe_power_limit(self, job: Job, number: int, cap_w: float | None, seconds: float) -> None:
        if (number, cap_w) not in self.asked[-1:]:
            self.asked.append((number, cap_w))

    def power_probes(self, job: Job) -> tuple[PowerProbeRecord, ...]:
        if not self.asked:
            return ()
        number, cap_w = self.asked[-1]
        limit_w = None if cap_w is None else max(cap_w, LOWEST_W)
        _, speed, watts = point_at(QUADRO_RTX_6000, limit_w or HIGHEST_W)
        record = PowerProbeRecord(
            "", number, limit_w, 120 * speed, 120.0, watts, ("gpu",), 1, LOWEST_W, HIGHEST_W
        )
        return tuple(
            self.change(replace(record, node_id=node.node_id)) for node in self._scene.living()
        )


def frugal(limits: Limits = SWEEPS) -> Policy:
    """Up to a fifth more dollars for fewer kWh."""
    objective = Objective(tolerance=0.2, then=(ObjectiveTerm.KWH,))
    return Policy("test", objective=objective, strategy=StrategySpec("adaptive"), limits=limits)


def swept(
    limits: Limits = SWEEPS,
    deadline_s: float = 10 * HOUR_S,
    caps: tuple[PowerCap, ...] = (),
    nodes: int = 1,
) -> tuple[Scene, Probing]:
    scene = Scene(
        always(SPOT_A, 4, 2.0),
        always(SAFE, 4, 6.0),
        jobs=[task(4 * HOUR_S, deadline_s, nodes=(nodes, nodes))],
        policy=frugal(limits),
        powers=UncappedPowers(*caps),
    )
    runtime = Probing(scene.cloud.runtime, scene)
    scene.cloud.runtime = runtime
    scene.restart()
    return scene, runtime


def planned(scene: Scene) -> list[float | None]:
    return [e.asked_w for e in scene.events(PowerLimitReported)]


def test_a_sweep_finds_a_limit_that_the_next_plan_uses() -> None:
    scene, runtime = swept()
    scene.go(600)
    assert len(scene.events(PowerLimitProbed)) < 5
    scene.go(1200)
    base, *probes = scene.events(PowerLimitProbed)
    assert (base.cap_w, base.units_per_s) == (None, 1.0)
    assert base.gpu_w == pytest.approx(191.7)
    assert base.node_w == pytest.approx(1.1 * (191.7 + 50))
    assert 3 <= len(probes) <= 4
    kept = [e.cap_w for e in probes if e.cap_w and (e.units_per_s or 0) >= 0.95]
    found = min(energy_at(QUADRO_RTX_6000, cap_w) for cap_w in kept)
    assert found <= 1.02 * best_energy(QUADRO_RTX_6000)
    assert set(planned(scene)) <= {e.cap_w for e in probes}
    assert planned(scene)
    assert runtime.asked[-1] == (len(probes) + 1, probes[-1].cap_w), "once"


def test_a_restarted_controller_goes_on_with_the_sweep_and_keeps_its_curve() -> None:
    scene, runtime = swept()
    while len(scene.events(PowerLimitProbed)) < 2:
        scene.tick()
    scene.restart()
    scene.go(1800)
    probes = scene.events(PowerLimitProbed)
    assert [e.cap_w for e in probes] == [cap_w for _, cap_w in runtime.asked]
    assert len({e.cap_w for e in probes}) == len(probes) <= 5
    before = planned(scene)
    scene.restart()
    scene.go(600)
    assert planned(scene) == before, "the same plan: nothing to change"
    assert scene.events(PowerLimitProbed) == probes


@pytest.mark.parametrize(
    "settings",
    [
        {"limits": Limits(power_caps=True)},
        {"limits": Limits(power_sweep=True)},
        {"deadline_s": 4.3 * HOUR_S},
        {"caps": (PowerCap(250.0, 0.9, 280.0, "test"),)},
    ],
    ids=["no permission", "no caps allowed", "no slack", "caps are known"],
)
def test_where_no_sweep_is_allowed_or_needed_none_is(settings: dict[str, Any]) -> None:
    scene, runtime = swept(**settings)
    scene.go(1800)
    assert runtime.asked == []


@pytest.mark.parametrize(
    "change",
    [
        {"message": "nvidia-smi ended with 4"},
        {"parts": ("cpu",)},
        {"gpus": 0},
        {"units": 0.0},
        {"units": -5.0},
        {"metered_w": 0.0},
    ],
    ids=lambda change: next(iter(change)) + str(next(iter(change.values()))),
)
def test_what_cannot_be_measured_is_recorded_once_and_ends_the_sweep(change: Any) -> None:
    scene, runtime = swept()
    runtime.change = lambda record: replace(record, **change)
    scene.go(1800)
    (event,) = scene.events(PowerLimitProbed)
    assert event.message
    assert event.units_per_s is None
    assert len(runtime.asked) == 1
    assert planned(scene) == []


def test_a_gang_is_measured_once_all_of_its_nodes_have_reported() -> None:
    scene, runtime = swept(nodes=2)
    silent = {"sim-0002"}
    runtime.change = lambda record: (
        replace(record, number=0) if record.node_id in silent else record
    )
    scene.go(1200)
    assert scene.events(PowerLimitProbed) == []
    silent.clear()
    scene.go(1200)
    assert scene.events(PowerLimitProbed)[0].units_per_s == 1.0


def test_the_lowest_limit_of_the_gpu_is_never_undercut() -> None:
    scene, runtime = swept()
    runtime.change = lambda record: replace(record, units=120.0)
    scene.go(1800)
    lowest = min(e.cap_w for e in scene.events(PowerLimitProbed) if e.cap_w is not None)
    assert lowest == LOWEST_W
    assert min(cap_w for _, cap_w in runtime.asked if cap_w is not None) == LOWEST_W
