"""Forms gangs of the nodes that remain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from costopt.domain.checkpoint_interval import LOSS_BUDGET_S, explained_interval
from costopt.domain.events import GangFormed
from costopt.domain.fleet import Node, NodeState
from costopt.domain.job import Job
from costopt.domain.notices import noticed_share
from costopt.domain.progress import GangState
from costopt.domain.transfers import save_paid_s
from costopt.domain.view import Decision, Desired
from costopt.engine.failures import JobFailures
from costopt.engine.fleet import FleetObserver
from costopt.engine.journal import Journal
from costopt.engine.power_limits import PowerCapManager
from costopt.engine.settings import EngineSettings, World
from costopt.engine.training import TrainingObserver, start_transfer_events
from costopt.ledger.job_record import JobRecord
from costopt.strategies.gang_options import save_interval_s

UNSAVED_SLACK_SHARE = 0.5
"""Share of the slack after a start that may be unsaved on spot. The shield counts unsaved work as
lost, so a job with little slack would leave spot for on-demand capacity before its next save."""


@dataclass(frozen=True, slots=True)
class _Gang:
    """Nodes that may train the job together, in the order of their ids."""

    job: Job
    decision: Decision
    members: tuple[Node, ...]

    @property
    def node_ids(self) -> tuple[str, ...]:
        return tuple(node.node_id for node in self.members)


class GangManager:
    """Starts training on whole gangs; a gang that lost a member is formed again without it."""

    def __init__(
        self,
        world: World,
        journal: Journal,
        settings: EngineSettings,
        jobs: Mapping[str, Job],
        fleet: FleetObserver,
        training: TrainingObserver,
        troubles: JobFailures,
    ) -> None:
        self._world = world
        self._journal = journal
        self._settings = settings
        self._jobs = jobs
        self._fleet = fleet
        self._training = training
        self._troubles = troubles
        self._power = PowerCapManager(world, journal)
        self._announced: dict[str, int] = {}

    def form(self, desired: Desired, now: datetime) -> None:
        """Form gangs whose nodes run and differ from those that already train.

        All of them are recorded in the ledger before the first is started.
        """
        gangs = [gang for d in desired.decisions if (gang := self._whole(d)) is not None]
        new = {gang.job.name for gang in gangs if self._is_new(gang)}
        with self._journal.batch():
            for gang in gangs:
                if gang.job.name in new:
                    self._announce(gang, now)
        for gang in gangs:
            with self._troubles.isolate(gang.job.name, now):
                if gang.job.name in new:
                    self._begin(gang, now)
                else:
                    self._resend(gang)
                    self._power.change(gang.job, gang.decision, gang.members, now)

    def forget(self, job: str) -> None:
        """Drop the state of a job that is no longer controlled."""
        self._announced.pop(job, None)
        self._power.forget(job)

    def _whole(self, decision: Decision) -> _Gang | None:
        job, record = self._jobs[decision.job], self._journal.records[decision.job]
        leaving = record.leaving
        wanted = {target.pool for target in decision.targets}
        ready = (
            n
            for n in self._fleet.nodes_of(job.name)
            if n.node_id not in leaving and n.state is NodeState.RUNNING and n.pool in wanted
        )
        members = tuple(sorted(ready, key=lambda n: n.node_id))
        if job.array is not None:
            members = self._reporting(job, record, members)
            return _Gang(job, decision, members) if members else None
        if not self._is_complete(job, record, decision, members):
            return None
        machine = self._world.machines.instance_type(members[0].pool)
        if machine is None:
            return _Gang(job, decision, members)
        group_nodes = job.resources.nodes_per_group(machine)
        if group_nodes is None or len(members) % group_nodes:
            return None
        return _Gang(job.on_gang(machine, len(members)), decision, members)

    def _reporting(self, job: Job, record: JobRecord, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """Return the nodes that can take an array's tasks: no other waits for one that boots."""
        new = [n.node_id for n in nodes if n.node_id not in record.trainers]
        silent: frozenset[str] = frozenset(new)
        with self._troubles.isolate(job.name, self._world.clock.now()):
            silent = self._world.runtime.unreported(job, new)
        return tuple(n for n in nodes if n.node_id not in silent)

    def _is_complete(
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
        pools = {str(target.pool) for target in decision.targets}
        comes = any(intent.pool in pools for intent in record.intents.values())
        return some_members_gone and not comes

    def _is_new(self, gang: _Gang) -> bool:
        """Return whether to form this gang: also with the same members, where they stopped, so that
        a failed command is tried again."""
        record = self._journal.records[gang.job.name]
        progress = self._training.progress.get(gang.job.name)
        broken = (
            progress is not None
            and progress.generation == record.generation
            and progress.state is GangState.IDLE
        )
        return broken or gang.node_ids != record.members

    def _resend(self, gang: _Gang) -> None:
        """Send the gang to a runtime that may have missed it: after a restart or a lost message."""
        job, generation = gang.job, self._journal.records[gang.job.name].generation
        if self._announced.get(job.name) == generation:
            return
        interval_s = self._interval_s(gang)
        self._world.runtime.form_gang(job, generation, gang.members, interval_s)
        self._announced[job.name] = generation

    def _announce(self, gang: _Gang, now: datetime) -> None:
        job, record = gang.job, self._journal.records[gang.job.name]
        self._training.hand_over(job, now)
        fetched = start_transfer_events(
            job,
            gang.members,
            record.trainers,
            self._world.transfers,
            now,
            restoring=record.checkpoint_units > 0,
        )
        self._journal.write(
            GangFormed(
                at=now,
                job=job.name,
                generation=record.generation + 1,
                node_ids=gang.node_ids,
                checkpoint_interval_s=self._interval_s(gang),
                scaling_efficiency=self._scaling_efficiency(gang),
            ),
            *fetched,
        )

    def _scaling_efficiency(self, gang: _Gang) -> float | None:
        machine = self._world.machines.instance_type(gang.members[0].pool)
        if machine is None:
            return None
        return gang.job.scaling_efficiency(machine, len(gang.members))

    def _begin(self, gang: _Gang, now: datetime) -> None:
        job, generation = gang.job, self._journal.records[gang.job.name].generation
        cap = self._power.wanted(job, gang.decision, gang.members)
        interval_s = self._interval_s(gang)
        self._world.runtime.form_gang(job, generation, gang.members, interval_s, cap)
        self._announced[job.name] = generation
        self._power.observe(job, now)
        self._training.expect(job, now)

    def _interval_s(self, gang: _Gang) -> float:
        job, members = gang.job, gang.members
        if job.array is not None:
            return 0.0
        if job.checkpoint.interval_s is not None:
            return job.checkpoint.interval_s
        hazard = 0.0
        for pool in dict.fromkeys(node.pool for node in members):
            if pool.capacity_type.is_interruptible:
                known = self._world.hazards.hazard_per_hour(pool)
                # The nodes of a pool go together.
                hazard += known.value if known is not None else 0.1
        return explained_interval(
            hazard_per_hour=hazard,
            blocking_save_s=job.checkpoint.save_s,
            noticed_share=noticed_share(
                (node.pool for node in members), self._world.notice_s, job.checkpoint.durable_s
            ),
            persist_s=job.checkpoint.durable_s,
            paid_s=save_paid_s(job, members, self._world.transfers),
            loss_budget_s=_loss_budget_s(gang) if hazard else LOSS_BUDGET_S,
        ).interval_s


def _loss_budget_s(gang: _Gang) -> float:
    slack_s = gang.decision.slack_s
    if slack_s is None:
        return LOSS_BUDGET_S
    floor_s = save_interval_s(gang.job.checkpoint)
    return min(LOSS_BUDGET_S, max(floor_s, UNSAVED_SLACK_SHARE * (slack_s - gang.job.overhead_s)))
