"""Idle, slow and faulty nodes: an alert at least, and a replacement where the policy allows it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from costopt.domain.events import (
    CheckpointCommitted,
    DrainIntended,
    GangFormed,
    GuardTripped,
    HealthChanged,
    LaunchIntended,
    NodeLaunched,
    NodeReplaced,
    RunStopped,
    WorkLost,
)
from costopt.domain.gpu_health import GpuHealth, HealthAction, HealthIssue, HealthRules
from costopt.domain.view import Target
from costopt.engine.stops import StopManager
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, Scene
from tests.support.unhealthy_nodes import Condition, Fixed, names, unhealthy_scene

FAULTY = Condition(health=GpuHealth(xids=(79,)))
SLOW = Condition(pace_s=2.0)
IDLE = Condition(busy=0.01)
REPLACE = HealthRules(
    idle=HealthAction.REPLACE, slow=HealthAction.REPLACE, faults=HealthAction.REPLACE
)
SICK = "sim-0002"


def issues(scene: Scene) -> list[tuple[str, HealthIssue | None]]:
    return [(e.node_id, e.issue) for e in scene.events(HealthChanged)]


@pytest.mark.parametrize(
    ("condition", "issue"),
    [
        (FAULTY, HealthIssue.FAULT),
        (SLOW, HealthIssue.SLOW),
        (IDLE, None),
        (replace(IDLE, stalls=True), HealthIssue.IDLE),
        (Condition(health=GpuHealth(ecc_errors=2)), HealthIssue.FAULT),
        (Condition(health=GpuHealth(remap_failed=True)), HealthIssue.FAULT),
        (Condition(health=GpuHealth(lost=True)), HealthIssue.FAULT),
    ],
)
def test_a_node_is_replaced_at_the_next_save_and_its_pool_rests(
    condition: Condition, issue: HealthIssue | None
) -> None:
    scene, runtime = unhealthy_scene(REPLACE)
    scene.go(HOUR_S)
    runtime.conditions[SICK] = condition
    scene.go(3 * HOUR_S)
    if issue is None:
        assert issues(scene) == [(SICK, HealthIssue.IDLE)], "reported; its gang does progress"
        assert not scene.events(NodeReplaced)
        return
    found = next(e for e in scene.events(HealthChanged) if e.node_id == SICK)
    assert found.issue is issue
    (replaced,) = scene.events(NodeReplaced)
    assert replaced.node_id == SICK
    saved = [e.at for e in scene.events(CheckpointCommitted) if found.at < e.at]
    if not condition.stalls:
        assert saved[0] <= replaced.at <= saved[0] + timedelta(minutes=2)
    (drained,) = scene.events(DrainIntended)
    assert drained.node_id == SICK
    again = [e.at for e in scene.events(LaunchIntended)][-1]
    assert again - replaced.at >= timedelta(seconds=scene.settings.cooldown_s)
    assert names(scene.living()) == ["sim-0001", "sim-0003", "sim-0004"]
    lost = sum(e.units for e in scene.events(WorkLost))
    assert lost <= 3 * 60, "at most what was done since the save, until the tick after it"


def test_the_default_is_an_alert_and_nothing_else() -> None:
    scene, runtime = unhealthy_scene(HealthRules())
    scene.go(HOUR_S)
    runtime.conditions = {"sim-0001": FAULTY, SICK: SLOW, "sim-0003": replace(IDLE, stalls=True)}
    scene.go(3 * HOUR_S)
    assert {issue for _, issue in issues(scene)} == {
        HealthIssue.FAULT,
        HealthIssue.SLOW,
        HealthIssue.IDLE,
    }
    assert not scene.events(NodeReplaced)
    assert not scene.events(DrainIntended)
    assert "Xid 79" in scene.engine.failing_nodes["job"]
    runtime.conditions = {}
    scene.go(HOUR_S)
    left = {node for node, _ in scene.engine.journal.records["job"].unhealthy.items()}
    assert left == {"sim-0001"}, "what has lasted and ended is reported as healthy; a fault stays"


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 63, 999])
def test_an_error_of_the_program_or_of_unknown_cause_replaces_nothing(xid: int) -> None:
    scene, runtime = unhealthy_scene(REPLACE)
    scene.go(HOUR_S / 2)
    runtime.conditions[SICK] = Condition(health=GpuHealth(xids=(xid,)))
    scene.go(2 * HOUR_S)
    assert not scene.events(NodeReplaced)
    warned = [] if xid in (13, 31, 43, 45) else [(SICK, HealthIssue.WARNING)]
    assert issues(scene) == warned


@pytest.mark.parametrize(
    ("normal", "nodes", "from_s"),
    [
        (SLOW, 1, HOUR_S / 2),
        (SLOW, 4, HOUR_S / 2),
        (Condition(busy=None, pace_s=None), 3, 0.0),
        (Condition(busy=0.9, stalls=True), 3, 0.0),
    ],
    ids=["slow node", "slow gang", "unknown", "busy, reports once at its end"],
)
def test_what_all_nodes_have_in_common_or_is_unknown_is_not_an_issue(
    normal: Condition, nodes: int, from_s: float
) -> None:
    scene, runtime = unhealthy_scene(REPLACE, nodes)
    scene.go(from_s)
    runtime.normal = normal
    scene.go(4 * HOUR_S)
    assert issues(scene) == []


def test_a_gang_that_is_idle_as_a_whole_and_makes_progress_keeps_its_nodes() -> None:
    scene, runtime = unhealthy_scene(REPLACE)
    scene.go(HOUR_S)
    runtime.normal = Condition(busy=0.0)
    scene.go(3 * HOUR_S)
    assert {issue for _, issue in issues(scene)} == {HealthIssue.IDLE}
    assert not scene.events(NodeReplaced)


FIRST = [f"sim-{number:04d}" for number in (1, 2, 3)]
HUNG_ROUNDS = [
    Condition(busy=0.0, stalls=True),
    Condition(busy=1.0, stalls=True),
    Condition(busy=None, stalls=True),
]
"""A collective that hangs may keep its GPUs busy."""


@pytest.mark.parametrize("condition", HUNG_ROUNDS)
@pytest.mark.parametrize("nodes", [1, 3])
def test_a_gang_that_hangs_in_training_is_replaced_as_a_whole(
    condition: Condition, nodes: int
) -> None:
    scene, runtime = unhealthy_scene(REPLACE, nodes, slack_s=0.0)
    scene.go(HOUR_S)
    runtime.conditions = dict.fromkeys(FIRST[:nodes], condition)
    scene.go(2 * HOUR_S)
    assert ("", HealthIssue.IDLE) in issues(scene)
    assert names(scene.events(NodeReplaced)) == FIRST[:nodes]
    assert len({event.at for event in scene.events(NodeReplaced)}) == 1
    assert len(scene.living()) == nodes
    assert scene.engine.journal.records["job"].training
    assert not scene.events(GuardTripped)


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_gang_that_never_makes_its_first_step_is_replaced_as_a_whole(nodes: int) -> None:
    scene, runtime = unhealthy_scene(REPLACE, nodes, slack_s=0.0)
    runtime.conditions["sim-0001"] = Condition(hangs=True, message="restored step 0")
    scene.go(3 * HOUR_S)
    (found,) = [e for e in scene.events(HealthChanged) if e.issue is not None]
    assert (found.node_id, found.issue) == ("", HealthIssue.IDLE)
    assert "no first step" in found.message
    assert "restored step 0" in found.message
    formed = scene.events(GangFormed)[0].at
    limit = timedelta(hours=1)
    assert limit <= found.at - formed <= limit + timedelta(minutes=5)
    assert names(scene.events(NodeReplaced)) == FIRST[:nodes]
    assert scene.engine.journal.records["job"].training
    assert "healthy" in scene.events(HealthChanged)[-1].message or not scene.engine.failing_nodes


def test_a_gang_that_does_not_start_is_an_alert_by_default() -> None:
    scene, runtime = unhealthy_scene(HealthRules())
    runtime.normal = Condition(hangs=True)
    scene.go(5 * HOUR_S)
    assert issues(scene) == [("", HealthIssue.IDLE)]
    assert "no first step" in scene.engine.failing_nodes["job"]
    assert not scene.events(NodeReplaced)
    runtime.normal = Condition()
    scene.go(HOUR_S)
    assert issues(scene)[-1] == ("", None)
    assert not scene.engine.failing_nodes


def test_a_start_that_reports_something_new_goes_on() -> None:
    scene, runtime = unhealthy_scene(REPLACE)
    for number in range(12):
        runtime.normal = Condition(hangs=True, message=f"fetched {number} of 12 objects")
        scene.go(0.8 * HOUR_S)
    assert issues(scene) == []


def test_a_start_may_take_twice_as_long_as_the_job_declares() -> None:
    scene, runtime = unhealthy_scene(REPLACE, startup_s=2 * HOUR_S)
    runtime.normal = Condition(hangs=True)
    scene.go(3.9 * HOUR_S)
    assert issues(scene) == []
    scene.go(HOUR_S)
    assert issues(scene)[0] == ("", HealthIssue.IDLE)


def test_gangs_that_hang_again_and_again_are_replaced_so_often_a_day() -> None:
    scene, runtime = unhealthy_scene(REPLACE)
    runtime.normal = Condition(hangs=True)
    scene.go(20 * HOUR_S)
    replaced = scene.events(NodeReplaced)
    assert len({event.at for event in replaced}) == REPLACE.max_replacements
    assert len(replaced) == 3 * REPLACE.max_replacements
    assert {e.guard for e in scene.events(GuardTripped)} == {"max_replacements"}


def test_an_idle_gang_is_released_as_the_policy_says_and_stays_so() -> None:
    scene, runtime = unhealthy_scene(HealthRules(idle=HealthAction.RELEASE))
    scene.go(HOUR_S)
    runtime.normal = Condition(busy=0.0, stalls=True)
    scene.go(2 * HOUR_S)
    assert scene.living() == []
    assert "idle" in scene.events(RunStopped)[-1].reason
    assert [e.guard for e in scene.events(GuardTripped)] == ["idle"]
    assert isinstance(scene.engine.stops, StopManager)
    assert "idle" in scene.engine.released["job"]
    launched = len(scene.events(NodeLaunched))
    scene.go(5 * HOUR_S)
    assert len(scene.events(NodeLaunched)) == launched


def test_a_gang_that_does_not_start_is_released_as_the_policy_says() -> None:
    scene, runtime = unhealthy_scene(HealthRules(idle=HealthAction.RELEASE))
    runtime.normal = Condition(hangs=True)
    scene.go(2 * HOUR_S)
    assert scene.living() == []
    assert "no first step" in scene.events(RunStopped)[-1].reason


@pytest.mark.slow
def test_replacements_end_after_so_many_a_day_and_resume_the_day_after() -> None:
    scene, runtime = unhealthy_scene(REPLACE)
    runtime.normal = FAULTY
    scene.go(23 * HOUR_S)
    assert len(scene.events(NodeReplaced)) == REPLACE.max_replacements
    assert {e.guard for e in scene.events(GuardTripped)} == {"max_replacements"}
    scene.restart()
    scene.go(2 * HOUR_S)
    assert len(scene.events(NodeReplaced)) == 2 * REPLACE.max_replacements


@pytest.mark.parametrize(("slack_s", "replaced"), [(None, 1), (100.0, 0), (449.0, 0), (451.0, 1)])
def test_no_replacement_takes_the_slack(slack_s: float | None, replaced: int) -> None:
    scene, runtime = unhealthy_scene(REPLACE, slack_s=slack_s)
    scene.go(HOUR_S / 2)
    runtime.conditions[SICK] = FAULTY
    scene.go(2 * HOUR_S)
    assert len(scene.events(NodeReplaced)) == replaced
    assert [e.guard for e in scene.events(GuardTripped)] == ["deadline"] * (1 - replaced)


def test_uninterruptible_pools_do_not_rest() -> None:
    scene, runtime = unhealthy_scene(REPLACE, pool=SAFE)
    scene.go(HOUR_S / 2)
    runtime.conditions[SICK] = FAULTY
    scene.go(HOUR_S)
    (replaced,) = scene.events(NodeReplaced)
    assert not replaced.pool_rests
    assert scene.events(LaunchIntended)[-1].at == replaced.at


def test_another_job_may_use_the_pool_of_a_replaced_node_at_once() -> None:
    scene, runtime = unhealthy_scene(REPLACE)
    scene.go(HOUR_S / 2)
    runtime.conditions[SICK] = FAULTY
    while not scene.events(NodeReplaced):
        scene.tick()
    records = scene.engine.journal.records["job"]
    assert SPOT_A in records.resting_from
    assert SPOT_A not in records.cooldown_from


def test_a_restart_forgets_neither_the_finding_nor_the_replacement() -> None:
    scene, runtime = unhealthy_scene(REPLACE)
    scene.go(HOUR_S / 2)
    runtime.conditions[SICK] = FAULTY
    for _ in range(24):
        scene.restart()
        scene.go(300)
    assert names(scene.events(NodeReplaced)) == [SICK]
    assert len(scene.events(HealthChanged)) == 1
    assert names(scene.living()) == ["sim-0001", "sim-0003", "sim-0004"]


def test_the_remaining_nodes_train_on_while_the_pool_rests() -> None:
    scene, runtime = unhealthy_scene(REPLACE, fewest=2)
    scene.go(HOUR_S / 2)
    runtime.conditions[SICK] = FAULTY
    while not scene.events(NodeReplaced):
        scene.tick()
    scene.go(240)
    assert scene.engine.journal.records["job"].members == ("sim-0001", "sim-0003")


def test_a_strategy_that_no_longer_wants_the_node_is_followed() -> None:
    scene, runtime = unhealthy_scene(REPLACE)
    scene.go(HOUR_S / 2)
    runtime.conditions[SICK] = FAULTY
    while not scene.events(NodeReplaced):
        scene.tick()
    assert isinstance(scene.strategy, Fixed)
    scene.strategy.targets = (Target(SAFE, 3),)
    scene.go(HOUR_S)
    assert {node.pool for node in scene.living()} == {SAFE}
