"""Nodes are given back one by one: a provider's fault holds none of the others."""

from __future__ import annotations

import pytest

from costopt.controller.live_run import release_all_nodes
from costopt.domain.errors import ThrottledError
from costopt.domain.view import Target
from tests.support.engine_fixtures import SPOT_A, Follow, Scene, always, task


def _scene() -> Scene:
    scene = Scene(
        always(SPOT_A, 4, 2.0), jobs=[task(nodes=(1, 3))], strategy=Follow(Target(SPOT_A, 3))
    )
    scene.tick()
    return scene


def _release(scene: Scene) -> tuple[str, ...]:
    record = scene.engine.journal.records["job"]
    return release_all_nodes([scene.cloud], "costopt", "job", record)


def test_all_nodes_are_released() -> None:
    scene = _scene()
    assert _release(scene) == ()
    assert not scene.living()


@pytest.mark.parametrize("error", [ThrottledError("too many calls"), KeyError("too many calls")])
def test_one_that_cannot_be_released_is_reported_and_holds_no_other(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    scene = _scene()
    release = scene.cloud.terminate

    def sometimes(node_id: str) -> None:
        if node_id == "sim-0001":
            raise error
        release(node_id)

    monkeypatch.setattr(scene.cloud, "terminate", sometimes)
    (reported,) = _release(scene)
    assert "sim-0001" in reported
    assert "too many calls" in reported
    assert [node.node_id for node in scene.living()] == ["sim-0001"]


@pytest.mark.parametrize("error", [ThrottledError("too many calls"), KeyError("Reservations")])
def test_where_the_list_fails_the_ledgers_nodes_are_released(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    scene = _scene()

    def fail(owner: str) -> None:
        raise error

    monkeypatch.setattr(scene.cloud, "nodes", fail)
    (reported,) = _release(scene)
    assert "cannot be listed" in reported
    monkeypatch.undo()
    assert not scene.living()
