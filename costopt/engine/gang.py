"""Forms gangs out of the nodes that stay."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from costopt.domain.events import GangFormed
from costopt.domain.fleet import Node, NodeState
from costopt.domain.interval import checkpoint_interval_s
from costopt.domain.job import GangState, Job
from costopt.domain.view import Decision
from costopt.engine.journal import Journal
from costopt.engine.moves import start_moves
from costopt.engine.power import PowerLimits
from costopt.engine.record import JobRecord
from costopt.engine.settings import Settings
from costopt.engine.training import Training
from costopt.engine.world import World


class Gangs:
    """Tells whole gangs to train; a gang that lost a member is formed anew from what is left."""

    def __init__(
        self, world: World, journal: Journal, settings: Settings, training: Training
    ) -> None:
        self._world = world
        self._journal = journal
        self._settings = settings
        self._training = training
        self._power = PowerLimits(world, journal)
        self._told: dict[str, int] = {}

    def form(self, job: Job, decision: Decision, nodes: Sequence[Node], now: datetime) -> None:
        """Form a gang if its nodes are there and differ from those that train already."""
        record = self._journal.records[job.name]
        leaving = record.draining.keys() | record.noticed.keys()
        wanted = {target.pool for target in decision.targets}
        ready = tuple(
            n
            for n in nodes
            if n.node_id not in leaving and n.state is NodeState.RUNNING and n.pool in wanted
        )
        members = tuple(sorted(ready, key=lambda n: n.node_id))
        if not self._is_whole(job, record, decision, members):
            return
        ids = tuple(n.node_id for n in members)
        if ids == record.members and not self._broken(job, record):
            self._remind(job, record, members)
            self._power.change(job, decision, members, now)
            return
        self._start(job, record, decision, members, now)

    def _is_whole(
        self, job: Job, record: JobRecord, decision: Decision, members: tuple[Node, ...]
    ) -> bool:
        wanted = sum(target.nodes for target in decision.targets)
        fewest = job.phase_at(record.done_units).min_nodes
        if not members or not fewest <= len(members) <= wanted:
            return False
        if len(members) == wanted:
            return True
        some_members_gone = bool(record.members) and any(
            m not in record.live for m in record.members
        )
        return some_members_gone and not record.intents

    def _broken(self, job: Job, record: JobRecord) -> bool:
        """The members are the same, yet they stopped: a command that failed is tried again."""
        progress = self._training.progress.get(job.name)
        return (
            progress is not None
            and progress.generation == record.generation
            and progress.state is GangState.IDLE
        )

    def _remind(self, job: Job, record: JobRecord, members: tuple[Node, ...]) -> None:
        """The runtime is told what it may not know: the controller was restarted, or not heard."""
        if self._told.get(job.name) == record.generation:
            return
        self._world.runtime.form(job, record.generation, members, self._interval_s(job, members))
        self._told[job.name] = record.generation

    def _start(
        self,
        job: Job,
        record: JobRecord,
        decision: Decision,
        members: tuple[Node, ...],
        now: datetime,
    ) -> None:
        interval_s = self._interval_s(job, members)
        generation = record.generation + 1
        self._training.hand_over(job, now)
        fetched = start_moves(
            job,
            members,
            record.trainers,
            self._world.transfers,
            now,
            restoring=record.checkpoint_units > 0,
        )
        self._journal.write(
            GangFormed(
                at=now,
                job=job.name,
                generation=generation,
                node_ids=tuple(n.node_id for n in members),
                checkpoint_interval_s=interval_s,
            ),
            *fetched,
        )
        cap = self._power.wanted(job, decision, members)
        self._world.runtime.form(job, generation, members, interval_s, cap)
        self._told[job.name] = generation
        self._power.observe(job, now)
        self._training.expect(job, now)

    def _interval_s(self, job: Job, members: tuple[Node, ...]) -> float:
        if job.checkpoint.interval_s is not None:
            return job.checkpoint.interval_s
        hazard = 0.0
        for node in members:
            if node.pool.capacity_type.interruptible:
                known = self._world.hazards.hazard_per_hour(node.pool)
                hazard += known.value if known is not None else 0.1
        return checkpoint_interval_s(
            hazard_per_hour=hazard,
            blocking_save_s=job.checkpoint.save_s,
            noticed_share=self._settings.noticed_share_of(job),
            persist_s=job.checkpoint.save_s,
        )
