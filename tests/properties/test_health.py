"""Whatever nodes report, only unhealthy ones are replaced, and not more than the policy allows."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costopt.domain.events import CheckpointCommitted, HealthChanged, NodeReplaced
from costopt.domain.gpu_health import GpuHealth, HealthAction, HealthIssue, HealthRules
from tests.support.engine_fixtures import HOUR_S
from tests.support.unhealthy_nodes import Condition, unhealthy_scene

WELL = Condition()
CONDITIONS = st.builds(
    Condition,
    busy=st.sampled_from([None, 0.0, 0.04, 0.06, 1.0]),
    pace_s=st.sampled_from([None, 0.5, 1.0, 1.4, 1.6, 5.0]),
    health=st.builds(
        GpuHealth,
        ecc_errors=st.sampled_from([None, 0, 0, 3]),
        remap_pending=st.sampled_from([None, False, True]),
        xids=st.sampled_from([(), (), (13,), (63,), (31, 43, 45), (79,)]),
    ),
    stalls=st.booleans(),
)
CHANGES = st.lists(
    st.tuples(st.integers(1, 6), st.none() | CONDITIONS, st.integers(5, 120)), max_size=8
)
ACTIONS = st.sampled_from([HealthAction.ALERT, HealthAction.REPLACE])


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    nodes=st.integers(1, 4),
    changes=CHANGES,
    idle=ACTIONS,
    slow=ACTIONS,
    faults=ACTIONS,
    most=st.integers(1, 3),
)
def test_only_unhealthy_nodes_are_replaced_and_at_most_so_many(
    nodes: int,
    changes: list[tuple[int, Condition | None, int]],
    idle: HealthAction,
    slow: HealthAction,
    faults: HealthAction,
    most: int,
) -> None:
    rules = HealthRules(idle=idle, slow=slow, faults=faults, max_replacements=most)
    scene, runtime = unhealthy_scene(rules, nodes)
    ever: dict[str, list[Condition]] = {}
    for number, condition, minutes in changes:
        node_id = f"sim-{number:04d}"
        runtime.conditions[node_id] = condition or WELL
        ever.setdefault(node_id, []).append(condition or WELL)
        scene.go(60 * minutes)
    runtime.conditions = {}
    scene.go(HOUR_S)
    replaced = scene.events(NodeReplaced)
    for event in replaced:
        found = [e for e in scene.events(HealthChanged) if e.at <= event.at]
        reasons = {e.issue for e in found if e.node_id in (event.node_id, "")}
        assert reasons & {
            issue for issue in HealthIssue if rules.action(issue) is HealthAction.REPLACE
        }
        faster = [n for n, known in ever.items() if any(map(_is_faster, known))]
        is_slower = HealthIssue.SLOW in reasons and any(n != event.node_id for n in faster)
        unwell = any(each != WELL for each in ever.get(event.node_id, ()))
        is_whole_gang = any(e.node_id == "" and e.issue is HealthIssue.IDLE for e in found)
        assert unwell or is_slower or is_whole_gang, "it was healthy"
        recent = {e.at for e in replaced if event.at - timedelta(days=1) < e.at <= event.at}
        assert len(recent) <= most


def _is_faster(condition: Condition) -> bool:
    """Whether well nodes are slow beside it: of two that report, nobody knows which is usual."""
    return condition.pace_s is not None and condition.pace_s < 1.0


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(nodes=st.integers(1, 4), normal=CONDITIONS, hours=st.integers(1, 6))
def test_a_gang_whose_nodes_are_alike_loses_none_without_a_fault(
    nodes: int, normal: Condition, hours: int
) -> None:
    rules = HealthRules(idle=HealthAction.REPLACE, slow=HealthAction.REPLACE)
    scene, runtime = unhealthy_scene(rules, nodes)
    scene.go(HOUR_S)
    runtime.normal = replace(normal, stalls=False)
    scene.go(HOUR_S * hours)
    idle_alone = nodes == 1 and runtime.normal.busy is not None
    assert idle_alone or not scene.events(NodeReplaced)
    assert scene.events(CheckpointCommitted)
