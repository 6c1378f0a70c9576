"""A provider of several regions goes on while one of them is silent, and the run says so."""

from __future__ import annotations

from costopt.domain.events import NodeEnded, SignalStale
from tests.support.engine_fixtures import SAFE, SPOT_A, Scene, always, task


class Parts:
    """The regions that a test makes silent."""

    def __init__(self, scene: Scene) -> None:
        self.silent: set[str] = set()
        scene.cloud.silent_regions = lambda: frozenset(self.silent)  # type: ignore[attr-defined]
        scene.cloud.complaints = lambda: {f"aws {r}": f"{r}: down" for r in self.silent}  # type: ignore[attr-defined]


def _scene() -> Scene:
    return Scene(always(SPOT_A, 4, 2.0), always(SAFE, 9, 8.0), jobs=[task()])


def test_a_node_of_a_silent_region_is_not_given_up() -> None:
    scene = _scene()
    parts = Parts(scene)
    scene.tick()
    parts.silent, scene.cloud.hidden = {"us-east-1"}, {"sim-0001"}
    scene.go(900)
    assert not scene.events(NodeEnded)
    assert len(scene.cloud.requests) == 1
    parts.silent, scene.cloud.hidden = set(), set()
    scene.go(120)
    assert [node.node_id for node in scene.living()] == ["sim-0001"]


def test_a_silent_region_is_told_once_for_as_long_as_it_lasts() -> None:
    scene = _scene()
    parts = Parts(scene)
    scene.tick()
    parts.silent = {"us-west-2"}
    scene.go(300)
    assert [e.source for e in scene.events(SignalStale)] == ["aws us-west-2"]
    parts.silent = set()
    scene.go(120)
    parts.silent = {"us-west-2"}
    scene.go(120)
    assert [e.message for e in scene.events(SignalStale)] == ["us-west-2: down"] * 2
