"""What nodes measure: recorded now and then, in place of the model, and planned with."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from costopt.domain.estimate import Basis
from costopt.domain.events import (
    CheckpointIntervalChanged,
    GuaranteeChanged,
    InterruptionExpected,
    InterruptionNoticed,
    NodeMeasured,
)
from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.domain.policy import CarbonSignal
from costopt.domain.power import NodePower, PowerCap
from costopt.domain.runtime import NodeReport
from costopt.domain.view import Target
from tests.support import engine_fixtures
from tests.support.engine_fixtures import HOUR_S, SPOT_A, Follow, Scene, always, task
from tests.support.forwarding import Forwarding

POWER = NodePower(
    500, 1000, 1.0, 400, Basis.MODELLED, 0.1, "test", (PowerCap(250.0, 0.9, 700.0, "test"),)
)


class PartedPowers:
    """1 kW busy, of which the CPUs draw 100 W and memory 50 W; fans a tenth on top."""

    def node_power(
        self, pool: Pool, carbon_signal: CarbonSignal = CarbonSignal.AVERAGE
    ) -> NodePower | None:
        return replace(POWER, cpu_w=100.0, other_w=50.0, overhead=1.1)


class Metered(Forwarding):
    """A runtime whose nodes draw ``watts`` at their meters from their launch on."""

    def __init__(self, inner: Any, scene: Scene) -> None:
        super().__init__(inner)
        self._scene = scene
        self.watts = 600.0
        self.report = NodeReport("", scene.clock.now(), scene.clock.now())

    def node_reports(self, job: Job) -> tuple[NodeReport, ...]:
        now = self._scene.clock.now()
        reports = []
        for node in self._scene.living():
            hours = (now - node.launched_at).total_seconds() / 3600
            wobble = timedelta(microseconds=now.microsecond + int(hours * 10))
            reports.append(
                replace(
                    self.report,
                    node_id=node.node_id,
                    from_at=node.launched_at + wobble,
                    until_at=now,
                    metered_wh=self.watts * hours,
                    training_wh=self.watts * hours,
                    training_s=hours * 3600,
                )
            )
        return tuple(reports)


@pytest.fixture(autouse=True)
def _powers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_fixtures, "Powers", PartedPowers)


def metered(**report: object) -> tuple[Scene, Metered]:
    scene = Scene(
        always(SPOT_A, 1, 2.0), jobs=[task(2 * HOUR_S)], strategy=Follow(Target(SPOT_A, 1))
    )
    runtime = Metered(scene.cloud.runtime, scene)
    machine = scene.engine.world.machines.instance_type(SPOT_A)
    assert machine is not None
    fields = {"parts": ("gpu",), "gpus": machine.gpu_count, **report}
    runtime.report = replace(runtime.report, **fields)  # type: ignore[arg-type]
    scene.cloud.runtime = runtime
    scene.restart()
    return scene, runtime


def test_measured_energy_replaces_the_model_for_its_time() -> None:
    scene, _ = metered()
    scene.go(HOUR_S)
    events = scene.events(NodeMeasured)
    assert 3 <= len(events) <= 7, "now and then, not at each tick"
    assert len({e.from_at for e in events}) == 1
    last = events[-1]
    hours = (last.until_at - last.from_at).total_seconds() / 3600
    assert last.wh == pytest.approx(1.1 * (600 + 100 + 50) * hours)
    assert last.busy_w == pytest.approx(1.1 * 750)
    summary = scene.summary()
    assert summary.measured_wh == pytest.approx(last.wh)
    assert summary.energy_basis is not None
    assert "measured" in summary.energy_basis


def test_measured_cpus_are_not_modelled_too() -> None:
    scene, _ = metered(parts=("gpu", "cpu"))
    scene.go(HOUR_S)
    assert scene.events(NodeMeasured)[-1].busy_w == pytest.approx(1.1 * 650)


def test_a_meter_of_the_whole_node_is_its_power() -> None:
    scene, _ = metered(parts=("node",), gpus=0)
    scene.go(HOUR_S)
    assert scene.events(NodeMeasured)[-1].busy_w == pytest.approx(600)
    assert scene.summary().measured_wh == pytest.approx(scene.events(NodeMeasured)[-1].wh)


def test_a_part_of_the_gpus_gives_no_figure_of_the_node() -> None:
    for wrong in ({"gpus": 0}, {"parts": ("cpu",)}):
        scene, _ = metered(**wrong, goodput=0.9)
        scene.go(HOUR_S)
        last = scene.events(NodeMeasured)[-1]
        assert last.wh is last.busy_w is None
        assert last.goodput == 0.9
        assert scene.summary().energy_basis == "modelled"


@pytest.mark.parametrize("watts", [-600.0, 0.0, 1e18])
def test_a_draw_that_the_node_cannot_have_is_not_believed(watts: float) -> None:
    scene, runtime = metered()
    runtime.watts = watts
    scene.go(HOUR_S)
    assert all(e.wh is None and e.busy_w is None for e in scene.events(NodeMeasured))
    assert scene.summary().energy_basis == "modelled"
    assert isinstance(scene.strategy, Follow)
    assert scene.strategy.views[-1].powers[SPOT_A].busy_w == 1000


def test_the_next_plan_counts_with_what_was_measured() -> None:
    scene, _ = metered()
    scene.go(HOUR_S)
    assert isinstance(scene.strategy, Follow)
    power = scene.strategy.views[-1].powers[SPOT_A]
    assert power.busy_w == pytest.approx(825)
    assert power.basis is Basis.MEASURED
    assert power.caps[0].busy_w == pytest.approx(700 * 0.825)
    assert scene.strategy.views[0].powers[SPOT_A].busy_w == 1000
    scene.restart()
    scene.tick()
    assert scene.strategy.views[-1].powers[SPOT_A].busy_w == pytest.approx(825)


def test_why_the_save_interval_changed_is_reported_once() -> None:
    scene, runtime = metered(interval_s=600.0, interval_reason="a save takes 2 s")
    scene.go(HOUR_S / 4)
    runtime.report = replace(runtime.report, interval_s=610.0)
    scene.go(HOUR_S / 4)
    runtime.report = replace(runtime.report, interval_s=900.0, interval_reason="fewer losses")
    scene.go(HOUR_S / 4)
    reported = [(e.interval_s, e.reason) for e in scene.events(CheckpointIntervalChanged)]
    assert reported == [(600.0, "a save takes 2 s"), (900.0, "fewer losses")]


def test_how_exact_the_result_is_is_reported_when_it_changes() -> None:
    scene, runtime = metered(guarantee="exact")
    scene.go(HOUR_S / 4)
    assert scene.summary().guarantee == "exact"
    for said in ("close: threads 1 became 2", ""):
        runtime.report = replace(runtime.report, guarantee=said)
        scene.go(HOUR_S / 4)
    reported = [e.guarantee for e in scene.events(GuaranteeChanged)]
    assert reported == ["exact", "close: threads 1 became 2"]
    assert scene.summary().guarantee == reported[-1]


def test_a_warning_is_reported_and_taken_back_and_stops_nothing() -> None:
    scene, runtime = metered(warning="rebalance recommended")
    scene.go(HOUR_S / 4)
    runtime.report = replace(runtime.report, warning="")
    scene.go(HOUR_S / 4)
    reported = [e.message for e in scene.events(InterruptionExpected)]
    assert reported == ["rebalance recommended", ""]
    assert scene.summary().nodes_launched == 1


def test_a_notice_that_only_the_node_heard_of_counts() -> None:
    scene, runtime = metered()
    scene.go(HOUR_S / 4)
    interrupts_at = scene.clock.now() + timedelta(seconds=120)
    runtime.report = replace(runtime.report, interrupts_at=interrupts_at)
    scene.go(180)
    (reported,) = scene.events(InterruptionNoticed)
    assert (reported.node_id, reported.pool, reported.interrupts_at) == (
        "sim-0001",
        str(SPOT_A),
        interrupts_at,
    )


def test_figures_without_energy_are_reported_now_and_then_and_once_at_the_end() -> None:
    scene, runtime = metered(gpus=0, step_s=0.5)
    scene.go(HOUR_S)
    assert 3 <= len(scene.events(NodeMeasured)) <= 7
    before = len(scene.events(NodeMeasured))
    runtime.report = replace(runtime.report, final=True)
    scene.go(HOUR_S / 2)
    assert len(scene.events(NodeMeasured)) <= before + 1
