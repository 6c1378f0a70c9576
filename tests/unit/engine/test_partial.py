"""A provider of several regions goes on while one of them is silent, and the run says so."""

from __future__ import annotations

from collections.abc import Mapping

from costopt.domain.events import NodeEnded, SignalStale
from costopt.provider.base import Capability
from tests.support.engine_fixtures import SAFE, SPOT_A, FaultyCloud, Scene, always, task


class PartialCloud(FaultyCloud):
    """Its ``unreachable`` regions do not answer."""

    unreachable: frozenset[str]

    def capabilities(self) -> frozenset[Capability]:
        return frozenset({Capability.PARTIAL_FAILURES})

    def unreachable_regions(self) -> frozenset[str]:
        return self.unreachable

    def errors_by_region(self) -> Mapping[str, str]:
        return {f"aws {region}": f"{region}: down" for region in self.unreachable}


def partial(scene: Scene) -> PartialCloud:
    cloud = scene.cloud
    cloud.__class__ = PartialCloud
    assert isinstance(cloud, PartialCloud)
    cloud.unreachable = frozenset()
    return cloud


def _scene() -> Scene:
    return Scene(always(SPOT_A, 4, 2.0), always(SAFE, 9, 8.0), jobs=[task()])


def test_a_node_of_a_silent_region_is_not_given_up() -> None:
    scene = _scene()
    cloud = partial(scene)
    scene.tick()
    cloud.unreachable, cloud.hidden = frozenset({"us-east-1"}), {"sim-0001"}
    scene.go(900)
    assert not scene.events(NodeEnded)
    assert len(scene.cloud.requests) == 1
    cloud.unreachable, cloud.hidden = frozenset(), set()
    scene.go(120)
    assert [node.node_id for node in scene.living()] == ["sim-0001"]


def test_a_silent_region_is_reported_once_for_as_long_as_it_lasts() -> None:
    scene = _scene()
    cloud = partial(scene)
    scene.tick()
    cloud.unreachable = frozenset({"us-west-2"})
    scene.go(300)
    assert [e.source for e in scene.events(SignalStale)] == ["aws us-west-2"]
    cloud.unreachable = frozenset()
    scene.go(120)
    cloud.unreachable = frozenset({"us-west-2"})
    scene.go(120)
    assert [e.message for e in scene.events(SignalStale)] == ["us-west-2: down"] * 2
