"""A node whose end no process saw is charged until its last sign of life, as an estimate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from costopt.domain.errors import StoreError
from costopt.domain.events import NodeEnded
from costopt.domain.fleet import EndCause, Node, NodeState
from costopt.domain.job import Job
from costopt.provider.node_book import NodeBook
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, Scene, always, changing, task
from tests.support.forwarding import Forwarding
from tests.support.market_fixtures import T0

INTERRUPTED_S = 1530
HEARD_AT = T0 + timedelta(seconds=INTERRUPTED_S - 5)
NODE = "sim-0001"


class ReportingRuntime(Forwarding):
    """Nodes sent their last heartbeat at ``heard_at``; None: they never did."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.heard_at: datetime | None = HEARD_AT
        self.error: StoreError | None = None

    def last_heartbeat_at(self, job: Job, node_ids: Iterable[str]) -> Mapping[str, datetime]:
        if self.error is not None:
            raise self.error
        return {} if self.heard_at is None else dict.fromkeys(node_ids, self.heard_at)


def scene_without_daemon(hours: float, **runtime: Any) -> Scene:
    """A spot node is interrupted while no daemon runs, and forgotten by its provider."""
    scene = Scene(
        changing(SPOT_A, (0, 4, 2.0), (INTERRUPTED_S, 0, 2.0), (9 * HOUR_S, 4, 2.0)),
        always(SAFE, 9, 8.0),
        jobs=[task(2 * HOUR_S, nodes=(1, 2))],
    )
    scene.cloud.runtime = reporting = ReportingRuntime(scene.cloud.runtime)
    for name, value in runtime.items():
        setattr(reporting, name, value)
    scene.restart()
    scene.go(1500)
    scene.clock.sleep(hours * HOUR_S)
    scene.cloud.hidden.add(NODE)
    scene.restart()
    scene.tick()
    return scene


def ends(scene: Scene) -> list[NodeEnded]:
    return [event for event in scene.events(NodeEnded) if event.node_id == NODE]


def usd_micros(scene: Scene) -> int:
    rows = scene.engine.journal.accounts["job"].intervals(scene.clock.now())
    return next(row.usd_micros for row in rows if row.node_id == NODE)


def test_a_lost_node_is_charged_until_its_last_heartbeat() -> None:
    scene = scene_without_daemon(3.0)
    (lost,) = ends(scene)
    assert (lost.cause, lost.ended_at, lost.estimated) == (EndCause.LOST, HEARD_AT, True)
    assert usd_micros(scene) == 2_000_000 * (INTERRUPTED_S - 5) // 3600


def test_the_end_that_the_provider_reports_later_corrects_the_estimate() -> None:
    scene = scene_without_daemon(1.0)
    scene.cloud.hidden.clear()
    scene.tick()
    _, reported = ends(scene)
    assert (reported.cause, reported.estimated) == (EndCause.INTERRUPTED, False)
    assert usd_micros(scene) == 2_000_000 * INTERRUPTED_S // 3600
    scene.go(600)
    assert len(ends(scene)) == 2
    rows = scene.engine.journal.accounts["job"].intervals(scene.clock.now())
    assert not next(row for row in rows if row.node_id == NODE).end_is_estimate


@pytest.mark.parametrize(
    "runtime", [{"heard_at": None}, {"error": StoreError("the store does not answer")}]
)
def test_without_a_heartbeat_a_lost_node_is_charged_until_now(runtime: dict[str, Any]) -> None:
    scene = scene_without_daemon(3.0, **runtime)
    (lost,) = ends(scene)
    assert lost.ended_at == lost.at


@pytest.mark.parametrize("heard_at", [T0 - timedelta(days=9), T0 + timedelta(days=900)])
def test_a_forged_heartbeat_moves_the_end_neither_before_the_launch_nor_ahead(
    heard_at: datetime,
) -> None:
    scene = scene_without_daemon(3.0, heard_at=heard_at)
    (lost,) = ends(scene)
    rows = scene.engine.journal.accounts["job"].intervals(scene.clock.now())
    launched_at = next(row.launched_at for row in rows if row.node_id == NODE)
    assert launched_at <= lost.ended_at <= lost.at


def test_a_node_that_was_listed_since_its_last_heartbeat_is_charged_until_it_was() -> None:
    scene = Scene(always(SPOT_A, 4, 2.0), jobs=[task(2 * HOUR_S, nodes=(1, 2))])
    scene.cloud.runtime = reporting = ReportingRuntime(scene.cloud.runtime)
    reporting.heard_at = T0
    scene.restart()
    scene.go(1500)
    scene.cloud.hidden.add(NODE)
    scene.tick()
    (lost,) = ends(scene)
    assert lost.at - lost.ended_at <= timedelta(seconds=60)


def test_an_interruption_whose_time_is_unknown_is_estimated_once_and_corrected() -> None:
    scene = scene_without_daemon(1.0)
    scene.cloud.hidden.clear()
    unknown = {"now": True}

    def nodes(owner: str) -> tuple[Node, ...]:
        return tuple(
            replace(node, ended_at=scene.clock.now(), end_is_estimate=True)
            if unknown["now"] and node.node_id == NODE
            else node
            for node in scene.cloud.inner.nodes(owner)
        )

    scene.cloud.nodes = nodes  # type: ignore[method-assign]
    scene.go(300)
    lost, estimate = ends(scene)
    assert (estimate.cause, estimate.ended_at) == (EndCause.INTERRUPTED, HEARD_AT)
    assert (lost.estimated, estimate.estimated) == (True, True)
    unknown["now"] = False
    scene.go(300)
    assert ends(scene)[-1].ended_at == T0 + timedelta(seconds=INTERRUPTED_S)
    assert len(ends(scene)) == 3
    assert scene.summary().interruptions == 1


def test_a_book_of_nodes_marks_a_time_that_was_not_reported() -> None:
    book, now = NodeBook(), T0 + timedelta(hours=2)
    scene = scene_without_daemon(0.0)
    listed = scene.cloud.inner.nodes(scene.settings.owner)
    ended = next(node for node in listed if node.node_id == NODE)
    ended = replace(ended, state=NodeState.ENDED, ended_at=None, end_cause=EndCause.INTERRUPTED)
    (seen,) = book.see([ended], now)
    assert (seen.ended_at, seen.end_is_estimate) == (now, True)
    later = now + timedelta(minutes=1)
    assert book.see([ended], later) == (seen,)
    book.announce_end(NODE, HEARD_AT)
    (corrected,) = book.see([ended], later)
    assert (corrected.ended_at, corrected.end_is_estimate) == (HEARD_AT, False)
