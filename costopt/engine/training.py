"""Observes training: brings the ledger in line with what the training runtime reports.

Also the transfers of a job's data and checkpoints to where its gang is, and their cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from costopt.domain import events as ev
from costopt.domain.fleet import Node
from costopt.domain.job import Job
from costopt.domain.market import InstanceType, Pool
from costopt.domain.money import to_micros
from costopt.domain.power import NodePower
from costopt.domain.progress import GangState, Progress
from costopt.domain.runtime import CheckpointRecord, NodeReport
from costopt.domain.storage import HOURS_PER_MONTH
from costopt.domain.transfers import (
    DataTransfer,
    TransferPrices,
    cache_transfers,
    checkpoint_storage,
    pools_without_data,
    save_transfer,
    start_transfers,
)
from costopt.engine.failures import JobFailures
from costopt.engine.journal import Journal
from costopt.engine.measurements import MeasurementObserver
from costopt.engine.power_limits import PowerCapManager
from costopt.engine.settings import World
from costopt.engine.tasks import task_events
from costopt.ledger.job_record import JobRecord

REPORTED_SHARE = 0.01
SMOOTHING = 0.3
"""Weight of the newest measured speed in the running mean: a slow minute is not a slow machine."""
MAX_SPEED_RATIO = 1000.0
"""Maximum ratio of measured and declared speed, in either direction."""
TRANSITIONAL_STATES = (GangState.IDLE, GangState.STARTING, GangState.STOPPING)
"""States in which unsaved work may be lost, or restored from the memory of a node."""


class TrainingObserver:
    """Records progress and speed of every job."""

    def __init__(
        self, world: World, journal: Journal, jobs: Mapping[str, Job], troubles: JobFailures
    ) -> None:
        self._world = world
        self._troubles = troubles
        self._journal = journal
        self._jobs = jobs
        self._power = PowerCapManager(world, journal)
        self._measurements = MeasurementObserver(world, journal)
        self._starts_at: dict[str, datetime] = {}
        self._begins_from: dict[str, float] = {}
        self._done_at: dict[str, datetime] = {}
        self.progress: dict[str, Progress] = {}
        self._measured_factor: dict[str, float] = {}
        self.speed_factor: dict[str, float] = {}

    def observe(self, now: datetime) -> None:
        """Record what the gangs have done since the last tick; the progress of an unreachable gang
        is unchanged."""
        records = self._journal.records
        working = [job for name, job in self._jobs.items() if not records[name].over]
        news: list[ev.Event] = []
        for job in working:
            record = records[job.name]
            self.progress.setdefault(job.name, Progress(record.done_units, record.saved_units))
            with self._troubles.isolate(job.name, now):
                self._power.observe(job, now)
                self._measurements.observe(job, now)
                progress = self._world.runtime.progress(job, now)
                news += self._news(job, record, progress, now)
                self.progress[job.name] = progress
        self._journal.write(*news)
        for name in self._jobs:
            self.speed_factor.setdefault(name, 1.0)
        for job in working:
            self._calibrate(job, records[job.name], self.progress[job.name])

    def forget(self, job: str) -> None:
        """Drop the state of a job that is no longer controlled."""
        for known in (self._starts_at, self._begins_from, self._done_at, self.progress):
            known.pop(job, None)
        self._measured_factor.pop(job, None)
        self.speed_factor.pop(job, None)
        self._measurements.reports.pop(job, None)

    def reports(self, job: str) -> tuple[NodeReport, ...]:
        """Return what the job's nodes reported at the last tick."""
        return self._measurements.reports.get(job, ())

    def capped_speed(self, job: Job) -> float:
        """Return the share of its uncapped speed that the job's gang has under power limits."""
        return self._power.speed(job)

    def measured_powers(self, modelled: Mapping[Pool, NodePower]) -> Mapping[Pool, NodePower]:
        """Return power by pool, as measured where its nodes have trained, else as modelled."""
        return self._measurements.powers(modelled)

    def hand_over(self, job: Job, now: datetime) -> None:
        """Record that the present gang stops, before another one is formed."""
        record = self._journal.records[job.name]
        progress = self.progress.get(job.name, Progress(record.done_units))
        if self._ran_unreported(job, record, progress, now):
            resumed_from = self._resumed_from(record, progress, ())
            self._journal.write(self._started(job, record, progress, now, resumed_from))
        if record.training:
            self._journal.write(
                ev.TrainingStopped(
                    at=now,
                    job=job.name,
                    generation=record.generation,
                    units=_known_units(progress, progress.done_units),
                    reason="handed over",
                )
            )

    def expect(self, job: Job, now: datetime) -> None:
        """Ask at once when a gang that was just formed will begin, and from where."""
        progress = self._world.runtime.progress(job, now)
        self.progress[job.name] = progress
        self._starts_at[job.name] = progress.starting_until or now
        self._begins_from[job.name] = progress.done_units
        self._done_at.pop(job.name, None)

    def _news(
        self, job: Job, record: JobRecord, progress: Progress, now: datetime
    ) -> list[ev.Event]:
        news: list[ev.Event] = [
            checkpoint_event(job, saved, self._world.transfers)
            for saved in self._world.runtime.checkpoints(job, record.checkpoint_units)
        ]
        news += [
            ev.CheckpointRefused(at=now, job=job.name, uri=torn.uri, message=torn.message)
            for torn in self._world.runtime.rejected_checkpoints(job)
            if torn.uri not in record.refused
        ]
        for event in [event for event in news if isinstance(event, ev.CheckpointCommitted)]:
            if _is_whole(job, event.units):
                self._done_at[job.name] = min(event.at, now)
            news += save_transfer_events(
                job, self._saved_in(record, event.units), self._world.transfers, event.at
            )
        news += self._task_news(job, record)
        resumed_from = self._resumed_from(record, progress, news)
        news += self._lost_work(job, record, progress, resumed_from, now)
        news += self._training_changes(job, record, progress, resumed_from, now)
        is_news = self._worth_reporting(job, record, progress, bool(news))
        if is_news and not self._has_saved_unreported(job, record, progress):
            news.append(
                ev.ProgressReported(
                    at=now,
                    job=job.name,
                    done_units=_believed_units(record, progress),
                    saved_units=progress.saved_units,
                    units_per_s=progress.measured_units_per_s,
                    speed_ratio=self._credible_ratio(job, record, progress),
                )
            )
        if progress.state is GangState.FINISHED:
            done_at = min(self._done_at.get(job.name, now), now)
            news.append(ev.JobFinished(at=done_at, job=job.name, units=progress.done_units))
        if progress.state is GangState.FAILED:
            why, node_id = progress.message, progress.failed_node
            news.append(ev.JobFailed(at=now, job=job.name, message=why, node_id=node_id))
        return news

    def _task_news(self, job: Job, record: JobRecord) -> list[ev.Event]:
        """Return the ends of an array's tasks that the ledger does not hold; the last ends it."""
        news = task_events(job, record, self._world.runtime)
        if news:
            self._done_at[job.name] = max(event.at for event in news)
        return news

    def _saved_in(self, record: JobRecord, units: float) -> Pool | None:
        """Return where a checkpoint was saved: by the previous gang if the present one began so."""
        begins_from = self._begins_from.get(record.name, 0.0)
        return record.gang_pool if units > begins_from else record.former_pool

    def _resumed_from(
        self, record: JobRecord, progress: Progress, news: Sequence[ev.Event]
    ) -> float:
        """Return the work units that the present gang began with, as it reports.

        Else what was saved when it was formed, of which an earlier controller may not have heard,
        or the newest checkpoint that is not ahead of the work known so far: that may be its own.
        """
        if progress.resumed_units is not None:
            return progress.resumed_units
        gang = self._journal.accounts[record.name].gang
        saves = [event for event in news if isinstance(event, ev.CheckpointCommitted)]
        known = [
            event.units
            for event in saves
            if event.units <= record.done_units or (gang is not None and event.at <= gang.at)
        ]
        if record.checkpoint_units <= record.done_units:
            known.append(record.checkpoint_units)
        return max([self._begins_from.get(record.name, 0.0), *known])

    def _training_changes(
        self, job: Job, record: JobRecord, progress: Progress, resumed_from: float, now: datetime
    ) -> list[ev.Event]:
        news: list[ev.Event] = []
        trains = progress.state is GangState.TRAINING
        stopped_at = min(self._done_at.get(job.name, now), now)
        if self._began(job, record, progress, now):
            until = now if trains else stopped_at
            news.append(self._started(job, record, progress, until, resumed_from))
        if (record.training or news) and not trains:
            news.append(
                ev.TrainingStopped(
                    at=stopped_at,
                    job=job.name,
                    generation=record.generation,
                    units=_known_units(progress, _believed_units(record, progress)),
                    reason=progress.message or progress.state.value,
                )
            )
        return news

    def _started(
        self, job: Job, record: JobRecord, progress: Progress, until: datetime, resumed_from: float
    ) -> ev.TrainingStarted:
        """Return the event of the start, when it was expected, but not after ``until``."""
        starts_at = min(self._expected_start(job, until), until)
        self._starts_at.pop(job.name, None)
        return ev.TrainingStarted(
            at=starts_at,
            job=job.name,
            generation=record.generation,
            units=_known_units(progress, resumed_from),
        )

    def _expected_start(self, job: Job, now: datetime) -> datetime:
        """Return when the newest gang was expected to do new work: as its runtime reported when it
        was formed, else after the job's own start-up time."""
        known, gang = self._starts_at.get(job.name), self._journal.accounts[job.name].gang
        if known is not None or gang is None:
            return known or now
        return gang.at + timedelta(seconds=job.overhead_s)

    def _ran_unreported(
        self, job: Job, record: JobRecord, progress: Progress, now: datetime
    ) -> bool:
        """Return whether the newest gang's command ran for longer than its start was expected to
        take without a report: it is assumed to have trained since."""
        newest = _is_untrained(record, progress)
        return newest and progress.unreported and self._expected_start(job, now) < now

    def _began(self, job: Job, record: JobRecord, progress: Progress, now: datetime) -> bool:
        """Return whether the newest gang trains, or has trained and stopped, for the first time."""
        newest = _is_untrained(record, progress)
        if progress.state in (GangState.TRAINING, GangState.STARTING):
            return newest and progress.state is GangState.TRAINING
        if self._ran_unreported(job, record, progress, now):
            return True
        from_units = self._begins_from.get(job.name, record.saved_units)
        return newest and progress.done_units > from_units

    def _lost_work(
        self, job: Job, record: JobRecord, progress: Progress, resumed_from: float, now: datetime
    ) -> list[ev.Event]:
        """Return the work that the runtime reports as lost, else what a gang resumed without.

        When a gang breaks, it is not yet known what the next one will find.
        """
        lost = progress.lost_units - record.lost_units
        reported = progress.lost_units > 0 or job.array is not None
        if not reported and self._began(job, record, progress, now):
            lost = record.done_units - resumed_from
        elif not reported and progress.state not in TRANSITIONAL_STATES:
            lost = record.done_units - progress.done_units
        if lost <= 1e-9 * job.work.amount:
            return []
        return [
            ev.WorkLost(at=now, job=job.name, units=lost, cause=progress.message or "not saved")
        ]

    def _has_saved_unreported(self, job: Job, record: JobRecord, progress: Progress) -> bool:
        """Return whether the newest gang has saved work before it reported anything: work that the
        gang before it has not done, and cannot have lost."""
        starts = progress.state is GangState.STARTING and _is_untrained(record, progress)
        saves = self._world.runtime.checkpoints(job, record.done_units) if starts else ()
        return any(saved.generation == record.generation for saved in saves)

    def _worth_reporting(
        self, job: Job, record: JobRecord, progress: Progress, changed: bool
    ) -> bool:
        moved = abs(_believed_units(record, progress) - record.done_units)
        differs = moved > 0 or progress.saved_units != record.saved_units
        return differs and (changed or moved >= REPORTED_SHARE * job.work.amount)

    def _calibrate(self, job: Job, record: JobRecord, progress: Progress) -> None:
        factor = self._speed_ratio(job, record, progress)
        if factor is None or self._power.is_probing(job):
            return
        known = self._measured_factor.get(job.name, factor)
        smooth = known + SMOOTHING * (factor - known)
        self._measured_factor[job.name] = smooth
        self.speed_factor[job.name] = 1.0 if abs(smooth - 1.0) < 1e-6 else smooth

    def _speed_ratio(self, job: Job, record: JobRecord, progress: Progress) -> float | None:
        """Return the measured speed over the declared one under the same power limits; None where
        either is unknown."""
        measured = progress.measured_units_per_s
        planned = self.planned_units_per_s(job, record, progress) if measured else None
        return measured / planned if measured and planned else None

    def gang_machine(self, record: JobRecord) -> InstanceType | None:
        """Return the machine of the gang's first node, None where it is unknown."""
        pool = record.gang_pool
        return None if pool is None else self._world.machines.instance_type(pool)

    def planned_units_per_s(self, job: Job, record: JobRecord, progress: Progress) -> float | None:
        """Return the speed that the job declares for its gang, under the power limits in force;
        None where it is unknown."""
        if not record.members:
            return None
        pools = [Pool.parse(record.live[m].pool) for m in record.members if m in record.live]
        if len(pools) != len(record.members):
            return None
        machine = self._world.machines.instance_type(pools[0])
        if machine is None:
            return None
        gpus = sum(self._gpus(pool) for pool in pools)
        predicted = job.gpus_units_per_s(machine, gpus, job.phase_at(progress.done_units))
        if predicted is None or predicted.value <= 0:
            return None
        return predicted.value * self.capped_speed(job)

    def _credible_ratio(self, job: Job, record: JobRecord, progress: Progress) -> float | None:
        """Return the ratio; None also beyond ``MAX_SPEED_RATIO``: the job's own code reports it."""
        ratio = self._speed_ratio(job, record, progress)
        if ratio is None or not 1 / MAX_SPEED_RATIO <= ratio <= MAX_SPEED_RATIO:
            return None
        return ratio

    def _gpus(self, pool: Pool) -> int:
        machine = self._world.machines.instance_type(pool)
        return 0 if machine is None else machine.gpu_count


def _is_untrained(record: JobRecord, progress: Progress) -> bool:
    """Return whether the newest gang is not known to have trained."""
    return progress.generation == record.generation > record.trained_generation


def _believed_units(record: JobRecord, progress: Progress) -> float:
    """Return the work done; while no gang trains, what became of unsaved work is unknown."""
    if progress.lost_units == 0 and progress.state in TRANSITIONAL_STATES:
        return max(record.done_units, progress.done_units)
    return progress.done_units


def _known_units(progress: Progress, units: float) -> float | None:
    """Return the units; None where a command without reports may resume its own checkpoint."""
    return None if progress.unreported and units <= 0 else units


def _is_whole(job: Job, units: float) -> bool:
    """Return whether a checkpoint holds all the work."""
    return units >= job.work.amount * (1 - 1e-9)


UNKNOWN_PRICE = "no known price"


def checkpoint_event(
    job: Job, saved: CheckpointRecord, prices: TransferPrices | None
) -> ev.CheckpointCommitted:
    """Return the event of a durable checkpoint, with what storing it costs."""
    gib = job.checkpoint.size_gib if saved.size_bytes is None else saved.size_bytes / 2**30
    stored, every = checkpoint_storage(job, gib, prices), job.checkpoint.keep_every
    return ev.CheckpointCommitted(
        at=saved.committed_at,
        job=job.name,
        units=saved.units,
        uri=saved.uri,
        size_bytes=saved.size_bytes,
        save_s=saved.save_s,
        put_usd_micros=to_micros(None if stored is None else stored[0]),
        kept_usd_micros_per_month=None
        if stored is None
        else to_micros(stored[1] * HOURS_PER_MONTH),
        region=job.checkpoint.region,
        keep=job.checkpoint.keep,
        is_milestone=bool(every and saved.units % every == 0),
    )


def start_transfer_events(
    job: Job,
    members: Iterable[Node],
    trained: Collection[str],
    prices: TransferPrices | None,
    now: datetime,
    *,
    restoring: bool,
) -> tuple[ev.DataMoved, ...]:
    """Return what a new gang fetches; ``trained`` are nodes of the job's earlier gangs."""
    nodes = tuple(members)
    new = Counter(node.pool for node in nodes if node.node_id not in trained)
    return (
        *(
            _moved(job, move, now, "start")
            for pool in pools_without_data(nodes, trained)
            for move in start_transfers(job, pool, prices, restoring=restoring)
        ),
        *(
            _moved(job, move, now, "cache")
            for pool, count in new.items()
            for move in cache_transfers(job, pool, count, prices)
        ),
    )


def save_transfer_events(
    job: Job, pool: Pool | None, prices: TransferPrices | None, at: datetime
) -> tuple[ev.DataMoved, ...]:
    """Return what a checkpoint that was saved in ``pool`` sends to other places."""
    move = None if pool is None else save_transfer(job, pool, prices)
    return () if move is None else (_moved(job, move, at, "save"),)


def _moved(job: Job, move: DataTransfer, at: datetime, why: str) -> ev.DataMoved:
    usd = move.usd
    return ev.DataMoved(
        at=at,
        job=job.name,
        from_region=move.from_region,
        to_region=move.to_region,
        gib=move.gib,
        usd_micros=to_micros(usd),
        source=UNKNOWN_PRICE if move.transfer is None else move.transfer.source,
        why=why,
    )
