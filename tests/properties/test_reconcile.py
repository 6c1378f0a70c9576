"""Reconcile closes the gap between desired and actual, and then has nothing to do."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from costopt.domain.fleet import Action, Drain, Launch, Node, NodeState, Terminate
from costopt.domain.market import CapacityType, Pool
from costopt.domain.view import Decision, Desired, Target
from costopt.engine.reconcile import Actual, PendingLaunch, reconcile

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POOLS = [Pool("aws", "r", zone, "p3.2xlarge", CapacityType.SPOT) for zone in "abc"]
JOBS = ["one", "two", "gone"]

targets = st.lists(st.builds(Target, st.sampled_from(POOLS), st.integers(1, 4)), max_size=3).map(
    tuple
)
desired_states = st.fixed_dictionaries(dict.fromkeys(JOBS[:2], targets)).map(
    lambda by_job: Desired(tuple(Decision(j, t, "because") for j, t in by_job.items()))
)
placements = st.lists(
    st.tuples(st.sampled_from(JOBS), st.sampled_from(POOLS), st.integers(0, 100)), max_size=12
)


def _node(number: int, job: str, pool: Pool, age_s: int) -> Node:
    return Node(
        f"n{number}", "me", job, pool, "k", NodeState.RUNNING, NOW - timedelta(seconds=age_s), 1.0
    )


@st.composite
def actual_states(draw: st.DrawFn) -> Actual:
    nodes = tuple(_node(i, *p) for i, p in enumerate(draw(placements)))
    ids = [n.node_id for n in nodes]
    some = st.sets(st.sampled_from(ids)) if ids else st.just(set[str]())
    pending = draw(
        st.lists(
            st.builds(
                PendingLaunch, st.sampled_from(JOBS[:2]), st.sampled_from(POOLS), st.integers(1, 2)
            ),
            max_size=2,
        )
    )
    return Actual(nodes, frozenset(draw(some)), frozenset(draw(some)), tuple(pending))


def _after(actual: Actual, actions: tuple[Action, ...]) -> Actual:
    nodes, draining = list(actual.nodes), set(actual.draining)
    for number, action in enumerate(actions):
        match action:
            case Launch(job, pool, count):
                nodes += [_node(1000 * number + i + 1000, job, pool, 0) for i in range(count)]
            case Drain(_, node_id, _):
                draining.add(node_id)
            case Terminate(_, node_id, _):
                nodes = [n for n in nodes if n.node_id != node_id]
    return Actual(tuple(nodes), frozenset(draining), actual.interruption_noticed, actual.pending)


@given(desired_states, actual_states())
def test_a_second_look_has_nothing_to_do(desired: Desired, actual: Actual) -> None:
    actions = reconcile(desired, actual)
    assert reconcile(desired, _after(actual, actions)) == ()


@given(desired_states, actual_states())
def test_what_stays_and_comes_is_what_was_desired(desired: Desired, actual: Actual) -> None:
    after = _after(actual, reconcile(desired, actual))
    for decision in desired.decisions:
        wanted: Counter[Pool] = Counter()
        for target in decision.targets:
            wanted[target.pool] += target.nodes
        there: Counter[Pool] = Counter()
        for node in after.nodes:
            leaving = node.node_id in after.draining | after.interruption_noticed
            if node.job == decision.job and not leaving:
                there[node.pool] += 1
        coming: Counter[Pool] = Counter()
        for launch in after.pending:
            if launch.job == decision.job:
                coming[launch.pool] += launch.nodes
        for pool in POOLS:
            assert there[pool] + coming[pool] >= wanted[pool]
            assert there[pool] <= max(0, wanted[pool] - coming[pool]) or there[pool] == 0


@given(desired_states, actual_states())
def test_leaving_nodes_are_not_touched_and_no_node_twice(desired: Desired, actual: Actual) -> None:
    actions = reconcile(desired, actual)
    drained = [a.node_id for a in actions if isinstance(a, Drain)]
    assert len(drained) == len(set(drained))
    assert not set(drained) & (actual.draining | actual.interruption_noticed)
    ended = {a.node_id for a in actions if isinstance(a, Terminate)}
    assert ended == {n.node_id for n in actual.nodes if n.job == "gone"}


@given(desired_states, actual_states(), st.data())
def test_what_nodes_alone_report_brings_no_more_nodes_than_desired(
    desired: Desired, actual: Actual, data: st.DataObject
) -> None:
    noticed = sorted(actual.interruption_noticed - actual.draining)
    own = frozenset(
        data.draw(st.sets(st.sampled_from(noticed)) if noticed else st.just(set[str]()))
    )
    resting = frozenset(
        data.draw(st.sets(st.tuples(st.sampled_from(JOBS), st.sampled_from(POOLS))))
    )
    actions = reconcile(desired, replace(actual, unconfirmed=own, resting=resting))
    for decision in desired.decisions:
        launches = [a for a in actions if isinstance(a, Launch) and a.job == decision.job]
        assert not resting & {(a.job, a.pool) for a in launches}
        holding = sum(n.node_id in own for n in actual.nodes if n.job == decision.job)
        launched = sum(a.nodes for a in launches)
        assert not launched or launched + holding <= sum(t.nodes for t in decision.targets)


@given(actual_states())
def test_the_newest_nodes_go_first(actual: Actual) -> None:
    desired = Desired((Decision("one", (Target(POOLS[0], 1),), "because"),))
    actions = reconcile(desired, Actual(actual.nodes))
    gone = {a.node_id for a in actions if isinstance(a, Drain)}
    mine = [n for n in actual.nodes if n.job == "one" and n.pool == POOLS[0]]
    kept = [n for n in mine if n.node_id not in gone]
    if mine:
        assert len(kept) == 1
        assert kept[0].launched_at == min(n.launched_at for n in mine)
