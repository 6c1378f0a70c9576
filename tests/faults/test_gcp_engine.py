"""Runs on Compute Engine when calls fail and controllers die: nothing doubled, nothing left."""

from __future__ import annotations

import pytest

from costopt.domain.events import InterruptionNoticed, NodeEnded, NodeLaunched
from costopt.domain.fleet import EndCause
from costopt.domain.view import Target
from costopt.session.orphans import find_orphans
from tests.cloud_scene import CloudScene
from tests.crashing_ledger import Crash, CrashingLedger
from tests.gcp.account import ELSEWHERE, REGION, SPOT, TYPE, NewAccount
from tests.gcp.faults import Fault, drop, drop_after, fail, throttle, unauthorized

FAULTS: dict[str, Fault] = {
    "throttled": throttle,
    "refused": unauthorized,
    "dropped": drop,
    "failed": fail,
    "lost": drop_after,
}


def _check(scene: CloudScene[NewAccount], nodes: int) -> None:
    """The ledger says what runs, and what runs is what is wanted; then all is given back."""
    project = scene.account
    running = set(project.cloud.instances.alive())
    assert scene.live() == running
    assert len(running) == nodes
    scene.engine.stop("the test is over")
    scene.go(4)
    assert not project.cloud.instances.alive()
    launched = [event.node_id for event in scene.events(NodeLaunched)]
    assert sorted(launched) == sorted(event.node_id for event in scene.events(NodeEnded))
    assert len(launched) == len(set(launched))
    records = scene.engine.journal.records
    assert not find_orphans(project.provider, "me", records, project.clock.now(), 0)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    "call",
    [
        "instances.aggregatedList",
        "instances.bulkInsert",
        "instances.delete",
        "instances.list",
        "zoneOperations.list",
        "zoneOperations.wait",
    ],
)
def test_a_call_that_fails_twice_costs_nothing_but_time(
    project: NewAccount, call: str, fault: str
) -> None:
    project.cloud.faults.on(call, FAULTS[fault], times=2)
    scene = CloudScene(project, Target(SPOT, 2))
    scene.go(6)
    _check(scene, 2)


def test_a_preempted_node_is_noticed_replaced_and_billed_to_its_strike(
    project: NewAccount,
) -> None:
    scene = CloudScene(project, Target(SPOT, 1), Target(ELSEWHERE, 1))
    scene.go(2)
    first = min(scene.live())
    strikes_at = project.cloud.interrupt(first)
    scene.go(1)
    (noticed,) = scene.events(InterruptionNoticed)
    assert (noticed.node_id, noticed.strikes_at) == (first, strikes_at)
    scene.go(4)
    (ended,) = scene.events(NodeEnded)
    assert (ended.node_id, ended.cause, ended.ended_at) == (
        first,
        EndCause.INTERRUPTED,
        strikes_at,
    )
    _check(scene, 2)


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
    dearer_at = project.clock.now()
    project.cloud.price(REGION, TYPE, 0.5, dearer_at)
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
    billed = (dearer_at - began_at).total_seconds() / 3600 * 0.25
    billed += (ended_at - dearer_at).total_seconds() / 3600 * 0.5
    assert _spent_micros(scene) == pytest.approx(billed * 1_000_000, abs=1)


def test_a_zone_whose_operations_are_silent_ends_nothing(project: NewAccount) -> None:
    scene = CloudScene(project, Target(SPOT, 1))
    scene.go(10)
    strikes_at = project.cloud.interrupt(min(scene.live()))
    project.clock.sleep(3600)
    project.cloud.faults.on("zoneOperations.list", fail, times=None)
    scene.restart()
    scene.go(10)
    assert not scene.events(NodeEnded)
    project.cloud.faults.reset()
    scene.go(2)
    (ended,) = scene.events(NodeEnded)
    assert ended.ended_at == strikes_at


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("nth", range(1, 10))
def test_a_controller_that_dies_at_any_write_adopts_its_nodes(
    project: NewAccount, nth: int, durable: bool
) -> None:
    scene = CloudScene(project, Target(SPOT, 2), ledger=CrashingLedger(nth, durable))
    crashed = False
    for step in range(8):
        if step == 4:
            for node_id in sorted(scene.live())[1:]:
                project.cloud.interrupt(node_id)
        try:
            scene.go(1)
        except Crash:
            crashed = True
            scene.restart()
    assert crashed
    project.clock.sleep(600)
    scene.go(4)
    _check(scene, 2)
