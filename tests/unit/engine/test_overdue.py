"""Nodes that are paid for after the deadline and save nothing are an alert, with their dollars."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

from costopt.domain.events import SignalStale
from costopt.domain.gpu_health import HealthRules
from costopt.engine.overdue import GANG
from tests.support.engine_fixtures import HOUR_S, Scene
from tests.support.unhealthy_nodes import Condition, UnhealthyRuntime, unhealthy_scene

HUNG = Condition(hangs=True)


def overdue_scene() -> tuple[Scene, UnhealthyRuntime]:
    return unhealthy_scene(HealthRules(), 1, deadline_s=4 * HOUR_S)


def alerts(scene: Scene) -> list[SignalStale]:
    return [e for e in scene.events(SignalStale) if e.source == GANG]


def test_a_gang_that_saves_nothing_after_its_deadline_is_an_alert_whenever_dollars_double() -> None:
    scene, runtime = overdue_scene()
    runtime.normal = HUNG
    scene.go(4.9 * HOUR_S)
    assert alerts(scene) == []
    scene.go(0.2 * HOUR_S)
    (alert,) = alerts(scene)
    assert "$1.00 since the deadline, $1.00 more an hour" in alert.message
    assert alert.message in scene.engine.failing_nodes["job"]
    scene.go(8.9 * HOUR_S)
    at = [event.at for event in alerts(scene)]
    assert [round((b - a) / timedelta(hours=1)) for a, b in pairwise(at)] == [1, 2, 4]


def test_a_late_gang_that_saves_is_not_an_alert() -> None:
    scene, runtime = overdue_scene()
    scene.go(8 * HOUR_S)
    assert alerts(scene) == []
    assert "job" not in scene.engine.failing_nodes
    runtime.normal = HUNG
    scene.go(3 * HOUR_S)
    assert len(alerts(scene)) >= 1
    runtime.normal = Condition()
    scene.go(2 * HOUR_S)
    assert "job" not in scene.engine.failing_nodes, "it saves again"
