"""A simulated cloud of which a test makes single nodes idle, slow or faulty."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from costopt.domain.gpu_health import GpuHealth, HealthRules
from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.domain.progress import GangState, Progress
from costopt.domain.runtime import NodeReport
from costopt.domain.view import Decision, Desired, Target, View
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, Scene, always, rules, task
from tests.support.forwarding import Forwarding


@dataclass
class Condition:
    """What a node reports; None is unknown. ``stalls``: its gang makes no progress; ``hangs``: it
    never begins to train, and ``message`` is what it says of that."""

    busy: float | None = 0.9
    pace_s: float | None = 1.0
    health: GpuHealth = field(default_factory=GpuHealth)
    stalls: bool = False
    hangs: bool = False
    message: str = ""


class UnhealthyRuntime(Forwarding):
    """Nodes report ``conditions`` by id; all others are well. The gang stalls with a member."""

    def __init__(self, inner: Any, scene: Scene) -> None:
        super().__init__(inner)
        self._scene = scene
        self.conditions: dict[str, Condition] = {}
        self.normal = Condition()
        self._totals: dict[str, tuple[datetime, float, float]] = {}
        self._held: tuple[int, float] | None = None

    def progress(self, job: Job, now: datetime) -> Progress:
        reported: Progress = self._inner.progress(job, now)
        record = self._scene.engine.journal.records[job.name]
        hung = [each for m in record.members if (each := self.condition(m)).hangs]
        if hung:
            saved = self._held = reported.generation, record.saved_units
            message = hung[0].message
            return replace(reported, state=GangState.STARTING, done_units=saved[1], message=message)
        if not any(self.condition(member).stalls for member in record.members):
            self._held = None
            return reported
        if self._held is None or self._held[0] != reported.generation:
            self._held = reported.generation, reported.done_units
        return replace(reported, done_units=self._held[1])

    def checkpoints(self, job: Job, after_units: float) -> tuple[Any, ...]:
        found: tuple[Any, ...] = self._inner.checkpoints(job, after_units)
        return found if self._held is None else ()

    def node_reports(self, job: Job) -> tuple[NodeReport, ...]:
        members = self._scene.engine.journal.records[job.name].members
        living = {node.node_id for node in self._scene.living(job.name)}
        return tuple(self._report(each) for each in members if each in living)

    def condition(self, node_id: str) -> Condition:
        return self.conditions.get(node_id, self.normal)

    def _report(self, node_id: str) -> NodeReport:
        now, condition = self._scene.clock.now(), self.condition(node_id)
        at, watched_s, busy_s = self._totals.get(node_id, (now, 0.0, 0.0))
        passed_s = (now - at).total_seconds()
        if condition.busy is not None:
            watched_s, busy_s = watched_s + passed_s, busy_s + condition.busy * passed_s
        self._totals[node_id] = now, watched_s, busy_s
        health = replace(condition.health, watched_s=watched_s, busy_s=busy_s)
        return NodeReport(
            node_id, now, now, microbatch_s=condition.pace_s, gpu_health=health, step_s=1.0
        )


class Fixed:
    """Requests the same gang at every tick, with this slack."""

    def __init__(self, slack_s: float | None, *targets: Target) -> None:
        self.targets = targets
        self.slack_s = slack_s

    def decide(self, view: View) -> Desired:
        return Desired(
            tuple(
                Decision(each.job.name, self.targets, "as requested", slack_s=self.slack_s)
                for each in view.jobs
            )
        )


def unhealthy_scene(
    health: HealthRules,
    nodes: int = 3,
    *,
    pool: Pool = SPOT_A,
    slack_s: float | None = 30 * HOUR_S,
    fewest: int | None = None,
    startup_s: float | None = None,
    deadline_s: float = 2000 * HOUR_S,
) -> tuple[Scene, UnhealthyRuntime]:
    """A gang that saves every half hour, under these rules."""
    job = task(400 * HOUR_S, deadline_s, nodes=(fewest or nodes, nodes))
    scene = Scene(
        always(SPOT_A, 8, 1.0),
        always(SAFE, 8, 8.0),
        jobs=[job if startup_s is None else replace(job, startup_s=startup_s)],
        policy=replace(rules("greedy_spot"), health=health),
        strategy=Fixed(slack_s, Target(pool, nodes)),
    )
    runtime = UnhealthyRuntime(scene.cloud.runtime, scene)
    scene.cloud.runtime = runtime
    scene.restart()
    return scene, runtime


def names(nodes: Iterable[Any]) -> list[str]:
    """Their ids."""
    return [node.node_id for node in nodes]
