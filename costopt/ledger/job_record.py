"""The engine's state of one job: a fold over the job's events."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from costopt.domain import events as ev
from costopt.domain.array import TaskOutcome
from costopt.domain.errors import NoCapacityError
from costopt.domain.events.node import NOT_SENT_ERROR, has_estimated_end
from costopt.domain.fleet import EndCause
from costopt.domain.market import Pool


@dataclass(slots=True)
class JobRecord:
    """What the engine remembers; all of it is folded from the ledger, so a restart loses nothing.

    ``short_of_capacity`` are pools last avoided because they had no capacity, ``refused_nodes`` how
    many nodes they refused where none has gone since, ``lost`` nodes whose
    end is an assumption. ``noticed`` are nodes with an interruption notice, by when they end; the
    ``unconfirmed`` ones only the node itself reported, at that time. Their pools rest for this job
    alone, since ``resting_from``; those in ``cooldown_from`` rest for all jobs. What nodes that are
    ``disbelieved`` report of interruptions counts only if the provider confirms it.
    ``unhealthy`` is the newest issue by node, "" for the whole gang; ``replaced`` the living nodes
    that are to be replaced, and ``replacements`` when that was decided, for a day.
    ``deaths`` are the launches of which a node failed on its own, and ``given_up`` the nodes that
    did not report, with the time, since work was saved last; ``last_words`` is why the last of
    them ended. ``longest_start_s`` is the maximum time of nodes from launch until they trained.
    ``ended_tasks`` are an array's; the ``failed_tasks`` of them are open again in a new run.
    ``cached`` is how each node got the job's cache. ``save_gbps`` is what each node of the gang
    sent of the newest checkpoint, in gigabits per second.
    """

    name: str
    submitted: bool = False
    finished: bool = False
    failed: str | None = None
    failure: ev.JobFailed | None = None
    live: dict[str, ev.NodeLaunched] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    intents: dict[str, ev.LaunchIntended] = field(default_factory=dict)
    draining: dict[str, datetime] = field(default_factory=dict)
    releasing: set[str] = field(default_factory=set)
    noticed: dict[str, datetime] = field(default_factory=dict)
    unconfirmed: dict[str, datetime] = field(default_factory=dict)
    disbelieved: set[str] = field(default_factory=set)
    deaths: dict[str, datetime] = field(default_factory=dict)
    given_up: dict[str, datetime] = field(default_factory=dict)
    last_words: str = ""
    unhealthy: dict[str, ev.HealthChanged] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)
    replacements: list[datetime] = field(default_factory=list)
    checkpoint_at: datetime | None = None
    have_trained: set[str] = field(default_factory=set)
    longest_start_s: dict[Pool, float] = field(default_factory=dict)
    resting_from: dict[Pool, datetime] = field(default_factory=dict)
    cooldown_from: dict[Pool, datetime] = field(default_factory=dict)
    short_of_capacity: set[Pool] = field(default_factory=set)
    refused_nodes: dict[Pool, int] = field(default_factory=dict)
    launches: dict[str, tuple[datetime, int, str]] = field(default_factory=dict)
    launch_count: int = 0
    decision_count: int = 0
    targets: tuple[tuple[str, int], ...] | None = None
    rule: str | None = None
    planned: ev.PlanMade | None = None
    generation: int = 0
    members: tuple[str, ...] = ()
    trainers: set[str] = field(default_factory=set)
    gang_pool: Pool | None = None
    former_pool: Pool | None = None
    training: bool = False
    trained_generation: int = 0
    done_units: float = 0.0
    saved_units: float = 0.0
    checkpoint_units: float = 0.0
    save_gbps: float | None = None
    lost_units: float = 0.0
    guard: str | None = None
    prices: dict[str, int] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    power_limits: dict[str, ev.PowerLimitReported] = field(default_factory=dict)
    lost: dict[str, tuple[ev.NodeLaunched, ev.NodeEnded]] = field(default_factory=dict)
    unbilled: dict[str, tuple[ev.NodeLaunched, ev.NodeEnded]] = field(default_factory=dict)
    uncappable: set[Pool] = field(default_factory=set)
    mode: str | None = None
    halted: ev.LaunchesHalted | None = None
    proposal_count: int = 0
    ended_tasks: set[int] = field(default_factory=set)
    failed_tasks: set[int] = field(default_factory=set)
    cached: dict[str, ev.CacheFetched] = field(default_factory=dict)

    def apply(self, event: ev.Event) -> None:
        """Fold one more event in."""
        change = _CHANGES.get(type(event))
        if change is not None:
            change(self, event)

    @property
    def over(self) -> bool:
        """Return whether the job is over, and needs nothing."""
        return self.finished or self.failed is not None

    @property
    def leaving(self) -> AbstractSet[str]:
        """Return the living nodes that will not train any longer."""
        drained = self.draining.keys() | self.replaced.keys()
        return drained | self.noticed.keys() | self.given_up.keys()

    def end_of(self, node_id: str) -> ev.NodeEnded | None:
        """Return the end of a node where that is an assumption, else None."""
        _, ended = self.lost.get(node_id, (None, None))
        return ended

    def launches_since(self, when: datetime) -> tuple[tuple[datetime, int, str], ...]:
        """Return (time, nodes, pool) of what was requested since ``when``, without refused ones."""
        return tuple(launch for launch in self.launches.values() if launch[0] > when)


def _submitted(record: JobRecord, _: ev.JobSubmitted) -> None:
    record.submitted = True
    record.failed = record.failure = None
    record.ended_tasks -= record.failed_tasks
    record.failed_tasks.clear()
    _forget_failures(record)


def _decided(record: JobRecord, event: ev.DecisionMade) -> None:
    record.decision_count += 1
    record.targets = event.targets
    record.rule = event.rule


def _planned(record: JobRecord, event: ev.PlanMade) -> None:
    record.planned = event


def _intended(record: JobRecord, event: ev.LaunchIntended) -> None:
    record.intents[event.key] = event
    record.launch_count += 1
    record.guard = None
    hour_ago = event.at - timedelta(hours=1)
    recent = {key: launch for key, launch in record.launches.items() if launch[0] > hour_ago}
    record.launches = recent | {event.key: (event.at, event.nodes, event.pool)}


def _launched(record: JobRecord, event: ev.NodeLaunched) -> None:
    record.live[event.node_id] = event
    record.known.add(event.node_id)
    record.prices[event.pool] = event.micros_per_hour
    intent = record.intents.get(event.key)
    if intent is not None:
        there = sum(1 for node in record.live.values() if node.key == event.key)
        if there >= intent.nodes:
            del record.intents[event.key]


def _launch_failed(record: JobRecord, event: ev.LaunchFailed) -> None:
    intent = record.intents.pop(event.key, None)
    record.launches.pop(event.key, None)
    if event.error == NOT_SENT_ERROR:
        return
    pool = Pool.parse(event.pool)
    record.cooldown_from[pool] = event.at
    record.refused_nodes.pop(pool, None)
    if event.error == NoCapacityError.code:
        record.short_of_capacity.add(pool)
        if intent is not None:
            record.refused_nodes[pool] = intent.nodes
    else:
        record.short_of_capacity.discard(pool)


def _price(record: JobRecord, event: ev.PriceChanged) -> None:
    record.prices[event.pool] = event.micros_per_hour


def _drain(record: JobRecord, event: ev.DrainIntended) -> None:
    record.draining.setdefault(event.node_id, event.at)


def _release(record: JobRecord, event: ev.TerminateIntended) -> None:
    record.draining.setdefault(event.node_id, event.at)
    record.releasing.add(event.node_id)


def _noticed(record: JobRecord, event: ev.InterruptionNoticed) -> None:
    record.noticed[event.node_id] = event.interrupts_at
    if event.confirmed:
        record.unconfirmed.pop(event.node_id, None)
        record.cooldown_from[Pool.parse(event.pool)] = event.interrupts_at
        record.refused_nodes.pop(Pool.parse(event.pool), None)
    else:
        record.unconfirmed[event.node_id] = event.at
        record.resting_from[Pool.parse(event.pool)] = event.at


def _notice_withdrawn(record: JobRecord, event: ev.NoticeWithdrawn) -> None:
    record.noticed.pop(event.node_id, None)
    record.unconfirmed.pop(event.node_id, None)
    record.disbelieved.add(event.node_id)


def _ended(record: JobRecord, event: ev.NodeEnded) -> None:
    assumed_launch, assumed = record.lost.pop(event.node_id, (None, None))
    launched = record.live.pop(event.node_id, None) or assumed_launch
    if launched is not None:
        if not launched.waiting:
            record.unbilled[event.node_id] = (launched, event)
        if has_estimated_end(event):
            record.lost[event.node_id] = (launched, event)
    record.draining.pop(event.node_id, None)
    record.releasing.discard(event.node_id)
    record.noticed.pop(event.node_id, None)
    record.unconfirmed.pop(event.node_id, None)
    record.disbelieved.discard(event.node_id)
    record.have_trained.discard(event.node_id)
    record.power_limits.pop(event.node_id, None)
    record.unhealthy.pop(event.node_id, None)
    record.replaced.pop(event.node_id, None)
    if assumed is None or assumed.cause is not event.cause:
        _count_end(record, launched, event)


def _count_end(record: JobRecord, launched: ev.NodeLaunched | None, event: ev.NodeEnded) -> None:
    """Count a failure or an interruption, once: not when only its time is corrected."""
    if launched is not None and event.cause is EndCause.FAILED:
        record.deaths[launched.key] = event.ended_at
        record.last_words = event.message
    if event.cause in (EndCause.INTERRUPTED, EndCause.NO_CAPACITY):
        record.cooldown_from[Pool.parse(event.pool)] = event.ended_at
        record.refused_nodes.pop(Pool.parse(event.pool), None)
    if event.cause is EndCause.NO_CAPACITY:
        record.short_of_capacity.add(Pool.parse(event.pool))


def _returned(record: JobRecord, event: ev.NodeReturned) -> None:
    launched, _ = record.lost.pop(event.node_id, (None, None))
    if launched is not None:
        record.live[event.node_id] = launched
        record.unbilled.pop(event.node_id, None)


def _billed(record: JobRecord, event: ev.NodeBilled) -> None:
    record.unbilled.pop(event.node_id, None)


def _formed(record: JobRecord, event: ev.GangFormed) -> None:
    record.generation = event.generation
    record.members = event.node_ids
    first = record.live.get(event.node_ids[0]) if event.node_ids else None
    record.former_pool = record.gang_pool
    record.gang_pool = None if first is None else Pool.parse(first.pool)
    record.trainers.update(event.node_ids)


def _given_up(record: JobRecord, event: ev.NodeGivenUp) -> None:
    record.given_up[event.node_id] = event.at
    record.last_words = event.message


def _health(record: JobRecord, event: ev.HealthChanged) -> None:
    record.unhealthy.pop(event.node_id, None)
    if event.issue is not None:
        record.unhealthy[event.node_id] = event


def _replaced(record: JobRecord, event: ev.NodeReplaced) -> None:
    day_ago = event.at - timedelta(days=1)
    record.replacements = [*(at for at in record.replacements if at > day_ago), event.at]
    record.replaced[event.node_id] = event.message
    if event.pool_rests:
        record.resting_from[Pool.parse(event.pool)] = event.at


def _forget_failures(record: JobRecord) -> None:
    record.deaths.clear()
    record.given_up = {n: at for n, at in record.given_up.items() if n in record.live}


def _started(record: JobRecord, event: ev.TrainingStarted) -> None:
    for node_id in record.members:
        node = record.live.get(node_id)
        if node is not None and node_id not in record.have_trained:
            pool = Pool.parse(node.pool)
            took_s = (event.at - node.launched_at).total_seconds()
            record.longest_start_s[pool] = max(took_s, record.longest_start_s.get(pool, 0.0))
    record.have_trained.update(record.members)
    record.training = True
    record.trained_generation = event.generation


def _stopped(record: JobRecord, event: ev.TrainingStopped) -> None:
    record.training = False
    if event.units is not None:
        record.done_units = event.units


def _cached(record: JobRecord, event: ev.CacheFetched) -> None:
    record.cached[event.node_id] = event


def _progressed(record: JobRecord, event: ev.ProgressReported) -> None:
    record.done_units = event.done_units
    if event.saved_units > record.saved_units:
        _forget_failures(record)
    record.saved_units = event.saved_units


def _saved(record: JobRecord, event: ev.CheckpointCommitted) -> None:
    if event.units > record.checkpoint_units:
        _forget_failures(record)
        record.checkpoint_at = event.at
    record.checkpoint_units = max(record.checkpoint_units, event.units)
    if event.size_bytes and event.save_s and record.members:
        gigabits = 8e-9 * event.size_bytes
        record.save_gbps = gigabits / event.save_s / len(record.members)


def _lost(record: JobRecord, event: ev.WorkLost) -> None:
    record.lost_units += event.units


def _refused(record: JobRecord, event: ev.CheckpointRefused) -> None:
    record.refused.add(event.uri)


def _power_limited(record: JobRecord, event: ev.PowerLimitReported) -> None:
    record.power_limits[event.node_id] = event
    node = record.live.get(event.node_id)
    if node is not None and event.asked_w is not None and event.cap_w is None:
        record.uncappable.add(Pool.parse(node.pool))


def _tripped(record: JobRecord, event: ev.GuardTripped) -> None:
    record.guard = event.guard
    if event.pool is not None:
        record.cooldown_from[Pool.parse(event.pool)] = event.at
        record.short_of_capacity.discard(Pool.parse(event.pool))


def _mode_changed(record: JobRecord, event: ev.ModeChanged) -> None:
    record.mode = event.mode


def _halted(record: JobRecord, event: ev.LaunchesHalted) -> None:
    record.halted = event


def _allowed(record: JobRecord, _: ev.LaunchesAllowed) -> None:
    record.halted = None


def _proposed(record: JobRecord, _: ev.ActionProposed) -> None:
    record.proposal_count += 1


def _task_ended(record: JobRecord, event: ev.TaskEnded) -> None:
    record.ended_tasks.add(event.task)
    if event.outcome is TaskOutcome.FAILED:
        record.failed_tasks.add(event.task)


def _finished(record: JobRecord, _: ev.JobFinished) -> None:
    record.finished = True


def _failed(record: JobRecord, event: ev.JobFailed) -> None:
    record.failed, record.failure = event.message, event


_CHANGES: dict[type[ev.Event], Callable[[JobRecord, Any], None]] = {
    ev.JobSubmitted: _submitted,
    ev.DecisionMade: _decided,
    ev.PlanMade: _planned,
    ev.LaunchIntended: _intended,
    ev.NodeLaunched: _launched,
    ev.LaunchFailed: _launch_failed,
    ev.PriceChanged: _price,
    ev.DrainIntended: _drain,
    ev.TerminateIntended: _release,
    ev.InterruptionNoticed: _noticed,
    ev.NoticeWithdrawn: _notice_withdrawn,
    ev.NodeGivenUp: _given_up,
    ev.HealthChanged: _health,
    ev.NodeReplaced: _replaced,
    ev.NodeEnded: _ended,
    ev.NodeReturned: _returned,
    ev.NodeBilled: _billed,
    ev.GangFormed: _formed,
    ev.CacheFetched: _cached,
    ev.TrainingStarted: _started,
    ev.TrainingStopped: _stopped,
    ev.ProgressReported: _progressed,
    ev.CheckpointCommitted: _saved,
    ev.CheckpointRefused: _refused,
    ev.WorkLost: _lost,
    ev.PowerLimitReported: _power_limited,
    ev.GuardTripped: _tripped,
    ev.ModeChanged: _mode_changed,
    ev.LaunchesHalted: _halted,
    ev.LaunchesAllowed: _allowed,
    ev.ActionProposed: _proposed,
    ev.TaskEnded: _task_ended,
    ev.JobFinished: _finished,
    ev.JobFailed: _failed,
}
