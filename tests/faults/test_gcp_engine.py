"""Runs on Compute Engine when calls fail and controllers die: nothing doubled, nothing left."""

from __future__ import annotations

from datetime import timedelta

import pytest

from costopt.domain.events import InterruptionNoticed, NodeBilled, NodeEnded, NodeLaunched
from costopt.domain.fleet import EndCause
from costopt.domain.market import CapacityType
from costopt.domain.view import Target
from tests.support.cloud_engine import CloudScene
from tests.support.gcp.account import ELSEWHERE, REGION, SPOT, TYPE, NewAccount
from tests.support.gcp.faults import FAULTS, fail


def test_a_preempted_node_is_noticed_replaced_and_billed_to_its_end(
    project: NewAccount,
) -> None:
    scene = CloudScene(project, Target(SPOT, 1), Target(ELSEWHERE, 1))
    scene.go(2)
    first = min(scene.live())
    interrupts_at = project.cloud.interrupt(first)
    scene.go(1)
    (noticed,) = scene.events(InterruptionNoticed)
    assert (noticed.node_id, noticed.interrupts_at) == (first, interrupts_at)
    scene.go(4)
    (ended,) = scene.events(NodeEnded)
    assert (ended.node_id, ended.cause, ended.ended_at) == (
        first,
        EndCause.INTERRUPTED,
        interrupts_at,
    )
    scene.check(2)


def _spent_micros(scene: CloudScene[NewAccount]) -> int:
    """What the ledger says that the job's nodes cost until now."""
    rows = scene.engine.journal.accounts["job"].intervals(scene.account.clock.now())
    return sum(row.usd_micros for row in rows)


@pytest.mark.parametrize("how", ["preempted", "deleted"])
@pytest.mark.parametrize("hours", [1, 30])
def test_what_ended_while_no_controller_ran_is_billed_to_its_true_end(
    project: NewAccount, how: str, hours: int
) -> None:
    """Google lists a deleted instance no more; its zone's operations still tell when it ended."""
    scene = CloudScene(project, Target(SPOT, 1))
    scene.go(10)
    (name,) = project.cloud.instances.alive()
    began_at = scene.engine.journal.records["job"].live[name].launched_at
    project.clock.sleep(1200)
    raised_at = project.clock.now()
    project.cloud.price(REGION, TYPE, 0.5, raised_at)
    project.clock.sleep(2400)
    if how == "preempted":
        ended_at, cause = project.cloud.interrupt(name), EndCause.INTERRUPTED
    else:
        project.connect().terminate(name)
        ended_at, cause = project.clock.now(), EndCause.RELEASED
    project.clock.sleep(hours * 3600)
    scene.targets = ()
    scene.restart()
    scene.go(15)
    (ended,) = scene.events(NodeEnded)
    assert (ended.node_id, ended.ended_at, ended.cause) == (name, ended_at, cause)
    assert not project.cloud.instances.alive()
    billed = (raised_at - began_at).total_seconds() / 3600 * 0.25
    billed += (ended_at - raised_at).total_seconds() / 3600 * 0.5
    assert _spent_micros(scene) == pytest.approx(billed * 1_000_000, abs=1)


def test_a_zone_whose_operations_are_silent_ends_nothing(project: NewAccount) -> None:
    scene = CloudScene(project, Target(SPOT, 1))
    scene.go(10)
    interrupts_at = project.cloud.interrupt(min(scene.live()))
    project.clock.sleep(3600)
    project.cloud.faults.on("zoneOperations.list", fail, times=None)
    scene.restart()
    scene.go(10)
    assert not scene.events(NodeEnded)
    project.cloud.faults.reset()
    scene.go(2)
    (ended,) = scene.events(NodeEnded)
    assert ended.ended_at == interrupts_at


FLEX = SPOT.with_capacity_type(CapacityType.FLEX_START)


def _flex_scene(project: NewAccount, comes_after: timedelta | None) -> CloudScene[NewAccount]:
    project.cloud.skus.g2_on_flex_start(REGION)
    project.cloud.instances.comes_after = comes_after
    return CloudScene(project, Target(FLEX, 1))


@pytest.mark.parametrize("restarts", [False, True])
def test_a_node_that_waited_is_billed_from_when_it_ran(project: NewAccount, restarts: bool) -> None:
    """The ledger equals the bill, whoever controls it meanwhile."""
    scene = _flex_scene(project, timedelta(minutes=40))
    for _ in range(13):
        scene.go(2, every_s=300)
        if restarts:
            scene.restart()
    waits, runs = scene.events(NodeLaunched)
    assert (waits.waiting, runs.waiting) == (True, False)
    assert runs.launched_at == waits.launched_at + timedelta(minutes=40)
    assert scene.live() == set(project.cloud.instances.alive()) == {runs.node_id}
    scene.engine.stop("the test is over")
    scene.go(15)
    (ended,) = scene.events(NodeEnded)
    assert not project.cloud.instances.alive()
    hours = (ended.ended_at - runs.launched_at).total_seconds() / 3600
    assert scene.events(NodeBilled)[-1].prices == ((runs.launched_at, 860_000),)
    assert _spent_micros(scene) == pytest.approx(hours * 860_000, abs=1)


def test_a_request_that_expires_rests_its_pool_and_is_made_again(project: NewAccount) -> None:
    scene = _flex_scene(project, None)
    scene.go(26, every_s=300)
    (ended,) = scene.events(NodeEnded)
    assert ended.cause is EndCause.NO_CAPACITY
    first, second = scene.events(NodeLaunched)
    assert first.waiting
    assert second.waiting
    assert second.at >= ended.ended_at + timedelta(seconds=90)
    assert _spent_micros(scene) == 0
    scene.engine.stop("the test is over")
    scene.go(4)
    assert not project.cloud.instances.alive()
    assert _spent_micros(scene) == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    "call", ["instances.aggregatedList", "instances.insert", "instances.delete", "instances.list"]
)
def test_a_call_that_fails_twice_asks_for_no_second_wait(
    project: NewAccount, call: str, fault: str
) -> None:
    project.cloud.faults.on(call, FAULTS[fault], times=2)
    scene = _flex_scene(project, timedelta(minutes=6))
    scene.go(15)
    assert len(project.cloud.instances.alive()) == 1
    scene.engine.stop("the test is over")
    scene.go(4)
    assert not project.cloud.instances.alive()
    assert len({event.node_id for event in scene.events(NodeLaunched)}) == 1
