"""The Runtime port over the mailbox: the controller's view of what the agents report."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from costopt.controller.array_status import ArrayReader, array_progress
from costopt.controller.gang_status import (
    CENTURY_S,
    GangMember,
    TimeScale,
    build_node_report,
    duration_s,
    failed_node,
    gang_status,
    possible_units,
    saved_units,
)
from costopt.domain.array import TaskArray, TaskRecord, max_task_s, parallel_tasks
from costopt.domain.fleet import Node
from costopt.domain.job import Job
from costopt.domain.notices import NoticePeriod, noticed_share, spot_notice_s
from costopt.domain.object_store import ObjectStore
from costopt.domain.ports import Clock, InstanceCatalog
from costopt.domain.power import PowerCap
from costopt.domain.progress import GangState, Progress
from costopt.domain.runtime import (
    CheckpointRecord,
    NodeReport,
    PowerLimitRecord,
    PowerProbeRecord,
    RejectedCheckpointRecord,
)
from costopt.domain.secret import SecretSource
from costopt.domain.transfers import TransferPrices, save_paid_s
from costopt.protocol.mailbox import Mailbox, MessageReader
from costopt.protocol.messages import Gang, Heartbeat, SecretName
from costopt.protocol.tasks import TaskBoard

HEARTBEAT_TIMEOUT_S = 5.0
UNREACHABLE_S = 60.0
NO_BEAT = -1
"""In place of the number of a heartbeat that never came."""
MAX_NODES, MAX_JOBS = 100_000, 2_000
"""Whose last sign of life, and whose letters, are remembered: those asked about most recently."""
MAX_DRAINING_NODES = 1_000
"""Nodes of a job that are looked at whether they have drained."""

GangHazard = Callable[[Job, tuple[Node, ...]], float | None]


class MailboxRuntime:
    """Forms gangs and reads their progress through an object store.

    ``clock`` is the job's time; it runs ``speed`` times faster than the wall, by which the speeds
    and times that nodes report are converted. ``gang_hazard`` answers interruptions per hour of
    the whole gang, from which trainers recompute their checkpoint interval as they measure how
    long a save takes; without it, or where the job fixes the interval, they keep the one given.
    What a save costs is by the prices of ``transfers``.
    ``owner`` is the account's, by which checkpoints name the job; "" if unknown.
    ``notice_s`` is how long before an interruption its notice comes, by pool.

    A node is unreachable if its heartbeat has not changed for ``silent_s`` of real time, by this
    process's own monotonic clock: the nodes' clocks need not agree with ours. A node runs as many
    of an array's tasks as its GPUs allow by ``machines``; one at a time where it is not in there.
    """

    def __init__(
        self,
        store: ObjectStore,
        clock: Clock,
        *,
        speed: float = 1.0,
        gang_hazard: GangHazard | None = None,
        notice_s: NoticePeriod = spot_notice_s,
        silent_s: float = HEARTBEAT_TIMEOUT_S,
        machines: InstanceCatalog | None = None,
        transfers: TransferPrices | None = None,
        owner: str = "",
    ) -> None:
        self._store = store
        self._owner = owner
        self._clock = clock
        self._speed = speed
        self._gang_hazard = gang_hazard
        self._notice_s = notice_s
        self._transfers = transfers
        self._silent_s = silent_s
        self._last_change: dict[tuple[str, str], tuple[int, float]] = {}
        self._once: dict[str, MessageReader] = {}
        self._machines = machines
        self._arrays: dict[str, ArrayReader] = {}

    def form_gang(
        self,
        job: Job,
        generation: int,
        nodes: tuple[Node, ...],
        checkpoint_interval_s: float,
        power_cap: PowerCap | None = None,
    ) -> None:
        """Tell these nodes to train together; the first is rank 0. Idempotent.

        An older generation than the current one is ignored.
        """
        mailbox = self._mailbox(job)
        standing = mailbox.gang()
        if standing is not None and standing.generation >= generation:
            return
        for node in nodes:
            mailbox.cancel_drain(node.node_id)
        hazard = None
        if self._gang_hazard is not None and job.checkpoint.interval_s is None:
            hazard = self._gang_hazard(job, nodes)
        machine = self._machines and self._machines.instance_type(nodes[0].pool)
        mailbox.post_gang(
            Gang(
                job=job.name,
                generation=generation,
                members=tuple(node.node_id for node in nodes),
                command=job.run,
                workdir=str(Path(job.workdir).resolve()),
                env=job.env,
                formed_at=time.time(),
                total_units=job.work.amount,
                checkpoint_uri=_absolute(job.checkpoint.uri, job.workdir),
                checkpoint_interval_s=checkpoint_interval_s,
                hazard_per_hour=hazard,
                save_paid_s=save_paid_s(job, nodes, self._transfers),
                noticed_share=noticed_share(
                    (node.pool for node in nodes), self._notice_s, job.checkpoint.durable_s
                ),
                speed=self._speed,
                power_cap_w=None if power_cap is None else power_cap.cap_w,
                elastic=job.goes_on_without(machine) if machine else job.elastic,
                is_sharded=job.resources.gpus_per_group is not None,
                zones=tuple(f"{node.pool.region}/{node.pool.zone}" for node in nodes),
                across_zones=job.checkpoint.across_zones,
                former=() if standing is None else self._still_training(mailbox, standing, nodes),
                secret=secrets.token_hex(16),
                data_uri=None if job.data is None else _absolute(job.data.uri, job.workdir),
                cache=tuple((c.uri, c.to, c.sha256 or "", c.in_image) for c in job.cache),
                task_slots=self._task_slots(job, nodes),
                task_gpus=1 if job.array is None else job.array.gpus_per_task,
                task_retries=0 if job.array is None else job.array.retries,
                task_s=max_task_s(job) / self._speed or None,
                task_timeout_s=self._task_timeout_s(job),
                image=job.image,
                setup=job.setup,
                secrets=_secret_names(job),
                owner=self._owner,
                tenant=job.tenant,
            )
        )

    def cap_power(self, job: Job, power_cap: PowerCap | None) -> None:
        """Write the limit into the current gang; its agents apply it during training."""
        mailbox = self._mailbox(job)
        gang = mailbox.gang()
        cap_w = None if power_cap is None else power_cap.cap_w
        if gang is not None and gang.power_cap_w != cap_w:
            mailbox.post_gang(replace(gang, power_cap_w=cap_w))

    def power_limits(self, job: Job) -> tuple[PowerLimitRecord, ...]:
        """Return the power limits that the members of the current gang report."""
        mailbox = self._mailbox(job)
        gang = _gang(mailbox, job)
        beats = () if gang is None else (mailbox.heartbeat(node_id) for node_id in gang.members)
        return tuple(
            PowerLimitRecord(beat.node_id, beat.power_asked_w, beat.power_cap_w, beat.power_message)
            for beat in beats
            if beat is not None and beat.power_message
        )

    def probe_power_limit(self, job: Job, number: int, cap_w: float | None, seconds: float) -> None:
        """Write the probe into the current gang; its agents end it without the controller."""
        mailbox = self._mailbox(job)
        gang = mailbox.gang()
        if gang is not None and gang.probe != number:
            probe_s = seconds / self._speed
            mailbox.post_gang(replace(gang, probe=number, probe_cap_w=cap_w, probe_s=probe_s))

    def power_probes(self, job: Job) -> tuple[PowerProbeRecord, ...]:
        """Return the newest probes that members of the current gang report of its generation."""
        mailbox = self._mailbox(job)
        gang = _gang(mailbox, job)
        if gang is None or not gang.probe:
            return ()
        beats = (mailbox.heartbeat(node_id) for node_id in gang.members)
        return tuple(
            PowerProbeRecord(
                node_id=beat.node_id,
                number=probe.number,
                cap_w=probe.cap_w,
                units=probe.units,
                seconds=probe.seconds * self._speed,
                metered_w=probe.metered_w,
                parts=probe.parts,
                gpus=probe.gpus,
                min_w=probe.min_w,
                limit_w=probe.limit_w,
                message=probe.message,
            )
            for beat in beats
            if beat is not None
            and (probe := beat.probe) is not None
            and probe.generation == gang.generation
        )

    def node_reports(self, job: Job) -> tuple[NodeReport, ...]:
        """Return the reports of the current gang's members, by rank."""
        mailbox = self._mailbox(job)
        gang, scale = _gang(mailbox, job), TimeScale(self._clock.now(), time.time(), self._speed)
        beats = () if gang is None else (mailbox.heartbeat(node_id) for node_id in gang.members)
        return tuple(build_node_report(beat, scale) for beat in beats if beat is not None)

    def progress(self, job: Job, now: datetime) -> Progress:
        """How far the job is, from the newest reports.

        Where no trainer is at work, ``done_units`` equals ``saved_units``: what was done beyond
        is lost. IDLE with a message after a break or a failure asks for a new generation.
        """
        mailbox = self._mailbox(job)
        gang = _gang(mailbox, job)
        if gang is None:
            return Progress()
        if job.array is not None:
            return self._array_progress(job, job.array, mailbox, gang)
        members = [self._member(mailbox, gang, node_id) for node_id in gang.members]
        beats = [m.heartbeat for m in members if m.heartbeat is not None]
        saved = possible_units(job, saved_units(mailbox, beats))
        state, message = gang_status(mailbox, job, gang, members, saved)
        if state is GangState.FINISHED:  # also where the command reported nothing of itself
            saved = max(saved, job.work.amount)
        working = state in (GangState.TRAINING, GangState.STOPPING)
        done = max([b.done_units for b in beats if b.reported and working], default=saved)
        begun = [possible_units(job, u) for b in beats if (u := b.resumed_units) is not None]
        rates = [b.units_per_s for b in beats if b.units_per_s is not None]
        # The whole job takes between a millisecond and a century of the wall.
        slowest, fastest = job.work.amount / CENTURY_S, job.work.amount / 0.001
        rates = [rate for rate in rates if slowest <= rate <= fastest]
        return Progress(
            done_units=max(possible_units(job, done), saved),
            saved_units=saved,
            state=state,
            generation=gang.generation,
            starting_until=self._starting_until(job, gang, now, state),
            measured_units_per_s=min(rates) / self._speed if rates and working else None,
            resumed_units=max(begun, default=None),
            message=message,
            failed_node=failed_node(mailbox) if state is GangState.FAILED else "",
            unreported=any(b.started for b in beats) and not any(b.reported for b in beats),
        )

    def publish_array(self, job: Job) -> None:
        """Write an array's tasks where its nodes read them. Raises StoreError, and SpecError where
        they have changed since it began."""
        if job.array is not None:
            TaskBoard(self._store, job.name).publish(job.array)

    def settled_tasks(self, job: Job) -> tuple[TaskRecord, ...]:
        """Return the tasks that had ended at the last look at the array's progress."""
        return self._array(job).records if job.array is not None else ()

    def checkpoints(self, job: Job, after_units: float) -> tuple[CheckpointRecord, ...]:
        """Durable checkpoints beyond ``after_units``, ascending; each amount of work once."""
        newest = {c.units: c for c in self._mailbox(job).checkpoints() if c.units > after_units}
        scale = TimeScale(self._clock.now(), time.time(), self._speed)
        return tuple(
            CheckpointRecord(
                units=units,
                uri=saved.uri,
                committed_at=scale.job_time(saved.at),
                size_bytes=saved.size_bytes if (saved.size_bytes or 0) > 0 else None,
                save_s=duration_s(saved.save_s, self._speed),
                generation=saved.generation,
            )
            for units, saved in sorted(newest.items())
        )

    def unreported(self, job: Job, node_ids: Iterable[str]) -> frozenset[str]:
        """Those of these nodes that have sent no heartbeat that can be read."""
        mailbox = self._mailbox(job)
        return frozenset(n for n in node_ids if mailbox.heartbeat(n) is None)

    def unreachable_s(self, job: Job, node_ids: Iterable[str]) -> Mapping[str, float]:
        """For how long those of these nodes that sent heartbeats have sent none, by this process's
        own clock. A minute of the wall is a pause, however fast the job's time runs."""
        mailbox, found = self._mailbox(job), dict[str, float]()
        for node_id in node_ids:
            number, changed_at = self._last_change.get((job.name, node_id), (NO_BEAT, 0.0))
            if number == NO_BEAT or time.monotonic() - changed_at <= UNREACHABLE_S:
                continue  # of most nodes nothing more is read
            silent_s = self._silence_s(job.name, node_id, mailbox.heartbeat(node_id))
            if silent_s > UNREACHABLE_S:
                found[node_id] = silent_s * self._speed
        return found

    def last_heartbeat_at(self, job: Job, node_ids: Iterable[str]) -> Mapping[str, datetime]:
        """When those of these nodes that sent heartbeats sent the newest, in the job's time."""
        mailbox = self._mailbox(job)
        scale = TimeScale(self._clock.now(), time.time(), self._speed)
        beats = ((node_id, mailbox.heartbeat(node_id)) for node_id in node_ids)
        return {node_id: scale.job_time(beat.at) for node_id, beat in beats if beat is not None}

    def drain(self, job: Job, node_ids: Iterable[str]) -> None:
        """Ask these nodes to save and stop training. Idempotent."""
        mailbox = self._mailbox(job)
        for node_id in node_ids:
            mailbox.request_drain(node_id)

    def is_drained(self, job: Job) -> frozenset[str]:
        """Nodes that were asked to drain and run no trainer any more, or are unreachable."""
        mailbox = self._mailbox(job)
        asked = mailbox.draining()[:MAX_DRAINING_NODES]
        return frozenset(node_id for node_id in asked if self._is_drained(mailbox, node_id))

    def rejected_checkpoints(self, job: Job) -> tuple[RejectedCheckpointRecord, ...]:
        """Checkpoints that trainers found torn or corrupt and passed over, in order of name."""
        return tuple(
            RejectedCheckpointRecord(r.uri, r.message)
            for r in self._mailbox(job).rejected_checkpoints()
        )

    def forget_failures(self, job: Job) -> None:
        """Reset the failures of a fixed command: it may fail as often again."""
        self._mailbox(job).forget_failures()
        if job.array is not None:
            self._array(job).forget_failures()

    def _array(self, job: Job) -> ArrayReader:
        if job.name not in self._arrays:
            self._arrays[job.name] = ArrayReader(
                TaskBoard(self._store, job.name), self._mailbox(job)
            )
            if len(self._arrays) > MAX_JOBS:
                del self._arrays[next(iter(self._arrays))]
        return self._arrays[job.name]

    def _array_progress(self, job: Job, array: TaskArray, mailbox: Mailbox, gang: Gang) -> Progress:
        reader, scale = self._array(job), TimeScale(self._clock.now(), time.time(), self._speed)
        reader.read(array, scale)
        members = []
        for node_id in gang.members:
            beat = mailbox.heartbeat(node_id)
            silent = self._is_unreachable(job.name, node_id, beat)
            members.append(GangMember(node_id, beat, silent))
        return array_progress(job, array, reader.records, gang, members, scale)

    def _task_slots(self, job: Job, nodes: tuple[Node, ...]) -> tuple[int, ...]:
        if job.array is None:
            return ()
        known = (self._machines and self._machines.instance_type(node.pool) for node in nodes)
        return tuple(parallel_tasks(job, machine, 1) or 1 if machine else 1 for machine in known)

    def _task_timeout_s(self, job: Job) -> float | None:
        limit_s = None if job.array is None else job.array.timeout_s
        return None if limit_s is None else limit_s / self._speed

    def _mailbox(self, job: Job) -> Mailbox:
        once = self._once[job.name] = self._once.pop(job.name, MessageReader(job.name))
        if len(self._once) > MAX_JOBS:
            del self._once[next(iter(self._once))]
        return Mailbox(self._store, job.name, once)

    def _is_drained(self, mailbox: Mailbox, node_id: str) -> bool:
        """A node that never sent a heartbeat trains nothing: it is waited for no longer than for
        one
        that is unreachable."""
        beat = mailbox.heartbeat(node_id)
        trains = beat is None or beat.state.is_training
        return not trains or self._is_unreachable(mailbox.job, node_id, beat)

    def _member(self, mailbox: Mailbox, gang: Gang, node_id: str) -> GangMember:
        beat = mailbox.heartbeat(node_id)
        if beat is None:
            return GangMember(node_id, None, silent=False)
        silent = self._is_unreachable(gang.job, node_id, beat)
        return GangMember(node_id, beat if beat.generation == gang.generation else None, silent)

    def _still_training(
        self, mailbox: Mailbox, standing: Gang, nodes: tuple[Node, ...]
    ) -> tuple[str, ...]:
        """Return the nodes of the current gang and of those that it awaits, if none of it stays:
        a node that stays hands over automatically."""
        if {node.node_id for node in nodes}.intersection(standing.members):
            return ()
        beats = map(mailbox.heartbeat, (*standing.members, *standing.former))
        return tuple(
            beat.node_id
            for beat in beats
            if beat is not None
            and beat.state.is_training
            and not self._is_unreachable(standing.job, beat.node_id, beat)
        )

    def _is_unreachable(self, job: str, node_id: str, beat: Heartbeat | None) -> bool:
        return self._silence_s(job, node_id, beat) > self._silent_s

    def _silence_s(self, job: str, node_id: str, beat: Heartbeat | None) -> float:
        """Return the seconds since the heartbeat changed, or since it was first asked for."""
        seen_at, key = time.monotonic(), (job, node_id)
        number = NO_BEAT if beat is None else beat.beat
        last_number, changed_at = self._last_change.pop(key, (NO_BEAT, seen_at))
        if last_number != number:
            changed_at = seen_at
        self._last_change[key] = number, changed_at
        if len(self._last_change) > MAX_NODES:
            del self._last_change[next(iter(self._last_change))]
        return seen_at - changed_at

    def _starting_until(
        self, job: Job, gang: Gang, now: datetime, state: GangState
    ) -> datetime | None:
        if state is not GangState.STARTING:
            return None
        formed_at = TimeScale(now, time.time(), self._speed).job_time(gang.formed_at)
        return max(now, formed_at + timedelta(seconds=job.overhead_s))


def _gang(mailbox: Mailbox, job: Job) -> Gang | None:
    """Return the current gang; None if it was forged, with more members than the job can have:
    each is asked for in the store."""
    gang = mailbox.gang()
    most = max(phase.max_nodes for phase in job.phases)
    return gang if gang is not None and len(gang.members) <= most else None


def _secret_names(job: Job) -> tuple[SecretName, ...]:
    """A tenant's secrets on this host are in a folder of its own."""
    return tuple(
        (
            secret.variable,
            source.value,
            f"{job.tenant}/{name}" if source is SecretSource.HOST else name,
            secret.as_file,
        )
        for secret in job.secrets
        for source, name in secret.names
    )


def _absolute(uri: str, workdir: str) -> str:
    return uri if "://" in uri else str(Path(workdir, uri).resolve())
