"""Computes the actions that turn the actual state into the desired state. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from costopt.domain.fleet import Action, Drain, Launch, Node, NodeState, Terminate
from costopt.domain.market import Pool
from costopt.domain.view import STOP, Decision, Desired


@dataclass(frozen=True, slots=True)
class PendingLaunch:
    """A requested launch that is not yet answered: its nodes count as coming."""

    job: str
    pool: Pool
    nodes: int


@dataclass(frozen=True, slots=True)
class Actual:
    """The actual state: living nodes, those about to end, and unanswered launches.

    ``draining`` nodes were asked to stop, ``doomed`` ones have an interruption notice; neither
    count as capacity. The latter are left to save until the interruption, unless their job stops
    or they have ``outlived`` their notice. An ``unconfirmed`` notice is the node's own: until it
    ends, the node holds its place in the gang, so that no report brings a job more nodes than it
    requests. Pools are ``resting`` for one job. Nodes that are ``given_up`` are released, and those
    that are ``replaced`` drained, with the reason; jobs that are ``waiting`` launch nothing. Nodes
    that are ``busy`` with an array's tasks are drained last; those that are ``kept`` live
    on although their job needs no nodes.
    """

    nodes: tuple[Node, ...]
    draining: frozenset[str] = frozenset()
    interruption_noticed: frozenset[str] = frozenset()
    pending: tuple[PendingLaunch, ...] = ()
    outlived: frozenset[str] = frozenset()
    unconfirmed: frozenset[str] = frozenset()
    resting: frozenset[tuple[str, Pool]] = frozenset()
    given_up: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    busy: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    replaced: Mapping[str, str] = field(default_factory=dict)


def reconcile(desired: Desired, actual: Actual) -> tuple[Action, ...]:
    """Return the actions that turn ``actual`` into ``desired``; none where they agree.

    For jobs with a decision, missing nodes are launched first and surplus ones drained then, newest
    first, so that a refused launch leaves running nodes as they are. So does one that waits for
    capacity, until its nodes run. Nodes of jobs without a decision are terminated.
    """
    actions: list[Action] = []
    decided = {decision.job for decision in desired.decisions}
    nodes_of: dict[str, list[Node]] = {}
    for node in actual.nodes:
        nodes_of.setdefault(node.job, []).append(node)
    for decision in desired.decisions:
        actions += _for_job(decision, nodes_of.get(decision.job, ()), actual)
    actions += [
        Terminate(node.job, node.node_id, "its job no longer needs nodes")
        for node in actual.nodes
        if node.job not in decided and node.node_id not in actual.kept
    ]
    return tuple(actions)


def _for_job(decision: Decision, nodes: Sequence[Node], actual: Actual) -> Iterable[Action]:
    staying: dict[Pool, list[Node]] = {}
    leaving = actual.draining | actual.interruption_noticed | actual.given_up
    for node in nodes:
        if node.node_id not in leaving and node.node_id not in actual.replaced:
            staying.setdefault(node.pool, []).append(node)
    coming: Counter[Pool] = Counter()
    for launch in actual.pending:
        if launch.job == decision.job:
            coming[launch.pool] += launch.nodes
    wanted: Counter[Pool] = Counter()
    caps_w: dict[Pool, float | None] = {}
    for target in decision.targets:
        wanted[target.pool] += target.nodes
        caps_w[target.pool] = target.power_cap_w
    missing = wanted - coming - Counter({pool: len(there) for pool, there in staying.items()})
    resting = [pool for pool in missing if (decision.job, pool) in actual.resting]
    resting_places = sum(missing.pop(pool) for pool in resting)
    held = sum(n.node_id in actual.unconfirmed for n in nodes) - resting_places
    for pool, count in missing.items():
        places, held = count - max(0, held), held - count
        if places > 0 and decision.job not in actual.waiting:
            yield Launch(decision.job, pool, places, caps_w[pool])
    yield from _unfit(decision, nodes, actual)
    yield from _doomed(decision, nodes, actual)
    yield from _surplus(decision, staying, coming, wanted, actual.busy)


def _unfit(decision: Decision, nodes: Iterable[Node], actual: Actual) -> Iterable[Action]:
    """Yield the end of nodes that do not report, or are unhealthy."""
    for node in nodes:
        if node.node_id in actual.given_up - actual.draining:
            yield Terminate(decision.job, node.node_id, "it does not report")
        elif node.node_id in actual.replaced.keys() - actual.draining - actual.interruption_noticed:
            yield Drain(decision.job, node.node_id, actual.replaced[node.node_id])


def _doomed(decision: Decision, nodes: Iterable[Node], actual: Actual) -> Iterable[Drain]:
    """Yield drains of nodes with a notice that must not wait for their interruption."""
    for node in nodes:
        if node.node_id not in actual.interruption_noticed - actual.draining - actual.given_up:
            continue
        if decision.rule == STOP:
            yield Drain(decision.job, node.node_id, decision.reason)
        elif node.node_id in actual.outlived:
            yield Drain(decision.job, node.node_id, "it was not interrupted at the announced time")


def _surplus(
    decision: Decision,
    staying: dict[Pool, list[Node]],
    coming: Counter[Pool],
    wanted: Counter[Pool],
    busy: frozenset[str],
) -> Iterable[Drain]:
    waits = any(_waits(node) for pool in wanted for node in staying.get(pool, ()))
    for pool, nodes in staying.items():
        too_many = len(nodes) + coming[pool] - wanted[pool]
        idle_then_newest = sorted(
            nodes, key=lambda n: (n.node_id not in busy, n.launched_at, n.node_id), reverse=True
        )
        for node in idle_then_newest[: max(0, too_many)]:
            if _waits(node) or not waits:
                yield Drain(decision.job, node.node_id, decision.reason)


def _waits(node: Node) -> bool:
    return node.state is NodeState.WAITING
