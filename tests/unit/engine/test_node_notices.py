"""What a node alone reports of its interruption: its job's own code may have written it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from costopt.domain.events import (
    DecisionMade,
    DrainIntended,
    InterruptionNoticed,
    NodeEnded,
    NodeLaunched,
    NoticeWithdrawn,
)
from costopt.domain.job import Job
from costopt.domain.market import Interruption
from costopt.domain.plan import COOLDOWN
from costopt.domain.runtime import NodeReport
from costopt.domain.view import Target
from costopt.ledger.summary import JobState
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, SPOT_B, Follow, Scene, always, task
from tests.support.forwarding import Forwarding

IN_A_CENTURY = timedelta(days=36_500)
COUNTS_AT_MOST = timedelta(minutes=5)
"""The longest notice of a cloud in use, and a few minutes."""


class Forging(Forwarding):
    """A runtime whose nodes of ``forgers`` report an interruption ``lead`` from now."""

    def __init__(self, inner: Any, scene: Scene) -> None:
        super().__init__(inner)
        self._scene = scene
        self.forgers: set[str] = set()
        self.lead: timedelta | None = IN_A_CENTURY

    def node_reports(self, job: Job) -> tuple[NodeReport, ...]:
        now = self._scene.clock.now()
        if job.name not in self.forgers:
            return ()
        at = None if self.lead is None else now + self.lead
        return tuple(
            NodeReport(node.node_id, node.launched_at, now, interrupts_at=at)
            for node in self._scene.living(job.name)
        )


def scene_of(*jobs: Job, strategy: Follow | None = None) -> tuple[Scene, Forging]:
    scene = Scene(
        always(SPOT_A, 8, 1.0),
        always(SPOT_B, 8, 2.0),
        always(SAFE, 9, 8.0),
        jobs=jobs,
        strategy=strategy or Follow(Target(SPOT_A, 1)),
    )
    runtime = Forging(scene.cloud.runtime, scene)
    scene.cloud.runtime = runtime
    scene.restart()
    return scene, runtime


def notice_of(scene: Scene, node_id: str, lead: timedelta) -> Interruption:
    now = scene.clock.now()
    return Interruption(node_id, SPOT_A, now, now + lead)


def test_a_forged_notice_rests_no_pool_of_another_job() -> None:
    other = task(name="other")
    scene, runtime = scene_of(task(), other)
    runtime.forgers = {"job"}
    scene.go(600)
    assert scene.events(InterruptionNoticed)
    for _ in range(2):
        offers = [view.offers for view in scene.strategy.views[-3:]]  # type: ignore[union-attr]
        room = {o.pool: o.nodes_available for each in offers for o in each}
        assert room[SPOT_A] != 0
        assert not [d for d in scene.events(DecisionMade, "other") if d.rule == COOLDOWN]
        scene.restart()
        scene.go(60)
    (noticed, *_) = scene.events(InterruptionNoticed)
    assert not noticed.confirmed
    assert noticed.interrupts_at - noticed.at <= COUNTS_AT_MOST


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_job_that_forges_notices_never_holds_more_nodes_than_it_asks_for(nodes: int) -> None:
    scene, runtime = scene_of(
        task(4 * HOUR_S, nodes=(1, nodes)), strategy=Follow(Target(SPOT_A, nodes))
    )
    runtime.forgers = {"job"}
    for _ in range(90):
        scene.tick()
        assert len(scene.living()) <= nodes


def test_a_notice_that_no_one_confirms_ends_with_the_node_drained_and_replaced() -> None:
    scene, runtime = scene_of(task())
    scene.go(1200)
    runtime.forgers = {"job"}
    scene.tick()
    (noticed,) = scene.events(InterruptionNoticed)
    scene.go(420)
    (drained,) = scene.events(DrainIntended)
    assert drained.node_id == noticed.node_id
    assert drained.at - noticed.at <= COUNTS_AT_MOST + timedelta(seconds=60)
    runtime.forgers = set()
    scene.go(300)
    assert [n.node_id for n in scene.living()] == ["sim-0002"]
    assert scene.summary().lost_units == 0


def test_a_notice_that_the_node_takes_back_is_withdrawn_and_its_word_counts_no_more() -> None:
    scene, runtime = scene_of(task())
    scene.go(600)
    runtime.forgers, lead = {"job"}, runtime.lead
    for runtime.lead in (lead, None, lead, None, lead):
        scene.tick()
    scene.go(900)
    assert len(scene.events(InterruptionNoticed)) == len(scene.events(NoticeWithdrawn)) == 1
    assert [n.node_id for n in scene.living()] == ["sim-0001"]
    assert not scene.events(DrainIntended)
    assert scene.engine.journal.accounts["job"].node("sim-0001").noticed_at is None  # type: ignore[union-attr]


def test_what_the_provider_confirms_counts_for_all_and_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene, runtime = scene_of(task())
    scene.go(600)
    runtime.forgers, runtime.lead = {"job"}, timedelta(seconds=120)
    scene.tick()
    assert len(scene.living()) == 1, "its place is taken until the provider says so too"
    reported = notice_of(scene, "sim-0001", timedelta(seconds=60))
    monkeypatch.setattr(scene.cloud, "notices", lambda owner: (reported,))
    scene.strategy.targets = (Target(SPOT_B, 1),)  # type: ignore[union-attr]
    scene.tick()
    own, confirmed = scene.events(InterruptionNoticed)
    assert (own.confirmed, confirmed.confirmed) == (False, True)
    assert confirmed.interrupts_at == reported.interrupts_at
    assert scene.pools() == [SPOT_A, SPOT_B]
    view = scene.strategy.views[-1]  # type: ignore[union-attr]
    assert {o.pool: o.nodes_available for o in view.offers}[SPOT_A] == 0


def test_the_pool_of_an_unconfirmed_notice_rests_for_its_own_job() -> None:
    scene, runtime = scene_of(task(nodes=(1, 2)))
    scene.go(600)
    runtime.forgers = {"job"}
    scene.tick()
    scene.strategy.targets = (Target(SPOT_A, 2),)  # type: ignore[union-attr]
    scene.tick()
    assert len(scene.living()) == 1
    scene.strategy.targets = (Target(SPOT_A, 1), Target(SPOT_B, 1))  # type: ignore[union-attr]
    scene.tick()
    assert scene.pools() == [SPOT_A, SPOT_B]


@pytest.mark.parametrize("confirmed", [False, True])
def test_a_noticed_node_is_drained_when_its_job_is_stopped(
    confirmed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, runtime = scene_of(task())
    scene.go(1200)
    if confirmed:
        reported = notice_of(scene, "sim-0001", timedelta(hours=12))
        monkeypatch.setattr(scene.cloud, "notices", lambda owner: (reported,))
    else:
        runtime.forgers = {"job"}
    scene.tick()
    assert scene.events(InterruptionNoticed)
    scene.engine.stop("cancelled")
    scene.finish(10)
    assert not scene.living()
    assert "sim-0001" in [e.node_id for e in scene.events(DrainIntended)]
    assert len(scene.events(NodeEnded)) == len(scene.events(NodeLaunched))
    assert scene.summary().state is JobState.STOPPED
    assert scene.summary().lost_units == 0


def test_a_provider_notice_that_does_not_come_true_ends_with_the_node_drained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene, _ = scene_of(task())
    scene.go(600)
    reported = notice_of(scene, "sim-0001", timedelta(seconds=120))
    monkeypatch.setattr(scene.cloud, "notices", lambda owner: (reported,))
    scene.strategy.targets = (Target(SPOT_B, 1),)  # type: ignore[union-attr]
    scene.go(1200)
    assert scene.pools() == [SPOT_B]
