"""A listing that lags, or leaves nodes out, costs nothing in the end: the ledger is put right."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest

from costopt.domain.events import NodeEnded, NodeReturned
from costopt.domain.fleet import EndCause, Node
from tests.support.engine_fixtures import (
    HOUR_S,
    SAFE,
    SPOT_A,
    FaultyCloud,
    Scene,
    always,
    changing,
    task,
)
from tests.support.market_fixtures import T0

TICKS = 90
ENDS_S = 1530


class LaggingCloud(FaultyCloud):
    """Its n-th listing is that of ``lags[n]`` ticks before, without the nodes in ``gaps[n]``.

    Once these are used up, it tells the truth.
    """

    lags: list[int]
    gaps: list[frozenset[int]]
    reported: list[tuple[Node, ...]]

    def nodes(self, owner: str) -> tuple[Node, ...]:
        self.reported.append(self.inner.nodes(owner))
        number = len(self.reported) - 1
        if number >= min(len(self.lags), len(self.gaps)):
            return self.reported[-1]
        listed = self.reported[max(0, number - self.lags[number])]
        return tuple(n for n in listed if int(n.node_id[-4:]) not in self.gaps[number])


def lagging(lags: list[int], gaps: list[frozenset[int]]) -> Scene:
    """A job of an hour and a half on spot that is taken away now and then."""
    scene = Scene(
        changing(
            SPOT_A, (0, 4, 2.0), (ENDS_S, 0, 2.0), (2400, 4, 3.0), (4000, 0, 3.0), (4600, 4, 2.5)
        ),
        always(SAFE, 9, 8.0),
        jobs=[task(1.5 * HOUR_S, nodes=(1, 2))],
        cooldown_s=120,
    )
    cloud = scene.cloud
    cloud.__class__ = LaggingCloud
    assert isinstance(cloud, LaggingCloud)
    cloud.lags, cloud.gaps, cloud.reported = lags, gaps, []
    return scene


def assert_put_right(scene: Scene) -> None:
    """Every node is billed from its launch to its end as the cloud knows them."""
    account, cloud = scene.engine.journal.accounts["job"], scene.cloud
    assert isinstance(cloud, LaggingCloud)
    true = {node.node_id: node for listing in cloud.reported for node in listing}
    rows = {row.node_id: row for row in account.intervals(scene.clock.now())}
    assert rows.keys() == true.keys()
    for node_id, node in true.items():
        assert node.ended_at is not None
        assert (rows[node_id].launched_at, rows[node_id].ended_at) == (
            node.launched_at,
            node.ended_at,
        )
    assert scene.summary().usd_micros == sum(row.usd_micros for row in rows.values())
    assert not scene.living()


@pytest.mark.parametrize("restarts", [False, True], ids=["one controller", "restarted"])
@pytest.mark.parametrize("seed", range(5))
def test_the_ledger_is_right_in_the_end(seed: int, restarts: bool) -> None:
    rng = Random(seed)
    lags = [rng.choice((0, 0, 1, 3, 12)) for _ in range(TICKS)]
    gaps = [frozenset(n for n in range(1, 9) if rng.random() < 0.3) for _ in range(TICKS)]
    scene = lagging(lags, gaps)
    for number in range(TICKS):
        if restarts and number % 7 == 0:
            scene.restart()
        scene.tick()
    scene.finish()
    scene.go(120)
    assert_put_right(scene)


@pytest.mark.parametrize("hidden_from_s", [1500, 1560], ids=["before it ended", "after"])
def test_a_node_whose_end_is_reported_later_is_billed_to_that_end(hidden_from_s: int) -> None:
    scene = lagging([], [])
    scene.go(hidden_from_s)
    _hide(scene, 1, ticks=10)
    scene.go(900)
    guess, reported = (e for e in scene.events(NodeEnded) if e.node_id == "sim-0001")
    assert (guess.cause, reported.cause) == (EndCause.LOST, EndCause.INTERRUPTED)
    assert reported.ended_at == T0 + timedelta(seconds=ENDS_S)
    row, *_ = scene.engine.journal.accounts["job"].intervals(scene.clock.now())
    assert row.usd_micros == 2_000_000 * ENDS_S // 3600


def test_a_node_that_was_left_out_of_one_listing_lives_on_and_is_billed_without_a_gap() -> None:
    scene = lagging([], [])
    scene.go(900)
    _hide(scene, 1, ticks=1)
    scene.go(180)
    lost, *_ = scene.events(NodeEnded)
    (back,) = scene.events(NodeReturned)
    assert lost.node_id == back.node_id == "sim-0001"
    assert "sim-0001" in {node.node_id for node in scene.living()}
    scene.finish()
    scene.go(120)
    assert_put_right(scene)


def _hide(scene: Scene, number: int, ticks: int) -> None:
    cloud = scene.cloud
    assert isinstance(cloud, LaggingCloud)
    cloud.gaps = [*[frozenset[int]()] * len(cloud.reported), *[frozenset({number})] * ticks]
    cloud.lags = [0] * len(cloud.gaps)
