"""Simulated training of a job over its gangs: work done, work saved, and what a loss costs.

Each gang trains at its own speed in each phase of the job.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from costopt.domain.errors import BadRequestError
from costopt.domain.job import Job, Phase
from costopt.domain.market import InstanceType
from costopt.domain.progress import GangState, Progress
from costopt.domain.runtime import CheckpointRecord
from costopt_sim.fleet import END_OF_TIME, SimFleet


class SimulatedTraining:
    """A gang ends in one of three ways, whichever comes first.

    It finishes the work and saves it. It stops early and saves: because it is drained, or because
    a node was announced to go at least ``save_s`` before, in which case it trains on until
    ``save_s`` before its end and loses nothing. Or a node goes while something is unsaved, and
    what is done falls back to what is saved.
    """

    def __init__(self, job: Job, fleet: SimFleet) -> None:
        self.generation = 0
        self._job = job
        self._fleet = fleet
        self._save = timedelta(seconds=job.checkpoint.save_s)
        self._gang: SimulatedGang | None = None
        self._saved_units = self._lost_units = 0.0
        self._message = ""
        self._drained_at = self._stops_at = self._dies_at = END_OF_TIME
        self._dies_with = ""
        self._fleet_version = -1
        self._asked: set[str] = set()
        self._records: list[CheckpointRecord] = []

    @property
    def finished(self) -> bool:
        """Whether all the work is done and saved."""
        return self._gang is None and self._saved_units >= self._job.work.amount

    def begin(self, gang: SimulatedGang, now: datetime) -> None:
        """Train with ``gang`` from now on."""
        self.generation = gang.generation
        self._gang = gang
        self._drained_at = END_OF_TIME
        self._message = ""
        self._fleet_version = -1
        self._asked.difference_update(gang.node_ids)
        self.settle(now)

    def regroup(self, now: datetime) -> tuple[float, datetime]:
        """Let the present gang go: the units it leaves saved, and when its nodes are free.

        A gang with unsaved work takes ``save_s`` to save it; that a node goes in these seconds
        is not modelled.
        """
        gang = self._gang
        if gang is None:
            return self._saved_units, now
        self._stops_at = min(now, self._stops_at)
        done_units, free_at = gang.done_at(self._stops_at), self._saved_after_stop_at(gang)
        self._stop(gang, done_units, free_at, "regrouped")
        return done_units, max(now, free_at)

    @property
    def node_ids(self) -> tuple[str, ...]:
        """The nodes that train."""
        return () if self._gang is None else self._gang.node_ids

    def change_speed(self, factor: float, now: datetime) -> None:
        """The same gang goes on ``factor`` times as fast; its next save is a whole interval off."""
        gang = self._gang
        if gang is None or now >= min(self._stops_at, gang.training_ends_at):
            return
        self._gang = replace(
            gang,
            trains_at=max(gang.trains_at, now),
            base_units=gang.done_at(now),
            saved_units=gang.saved_at(now),
            units_per_s=gang.units_per_s * factor,
        )

    def settle(self, now: datetime) -> None:
        """Play the present gang up to ``now``."""
        gang = self._gang
        if gang is None:
            return
        if self._fleet_version != self._fleet.version:
            self._schedule_next_event(gang)
        if gang.finishes_at <= min(now, self._dies_at) and gang.training_ends_at <= self._stops_at:
            self._stop(gang, gang.amount_units, gang.finishes_at, "finished")
        elif (stopped_at := self._saved_after_stop_at(gang)) <= min(now, self._dies_at):
            self._stop(gang, gang.done_at(self._stops_at), stopped_at, "stopped after a save")
        elif self._dies_at <= now:
            last_at = min(self._dies_at, self._stops_at)
            self._record(gang, last_at)
            self._lost_units += gang.done_at(last_at) - gang.saved_at(last_at)
            self._stop(gang, gang.saved_at(last_at), last_at, f"lost {self._dies_with}")
        else:
            self._record(gang, min(now, self._stops_at))

    def progress(self, now: datetime) -> Progress:
        """What is done and saved at ``now``, after ``settle(now)``."""
        gang = self._gang
        if gang is None:
            return Progress(
                done_units=self._saved_units,
                saved_units=self._saved_units,
                state=GangState.FINISHED if self.finished else GangState.IDLE,
                generation=self.generation,
                lost_units=self._lost_units,
                message=self._message,
            )
        trained_until = min(now, self._stops_at)
        state = self._state(gang, now)
        done_units = gang.done_at(trained_until)
        return Progress(
            done_units=done_units,
            saved_units=gang.saved_at(trained_until),
            state=state,
            generation=self.generation,
            starting_until=gang.trains_at if state is GangState.STARTING else None,
            measured_units_per_s=gang.speed_at(done_units) if state is GangState.TRAINING else None,
            lost_units=self._lost_units,
        )

    def checkpoints(self, after_units: float) -> tuple[CheckpointRecord, ...]:
        """Recorded checkpoints beyond ``after_units``, ascending."""
        newer: list[CheckpointRecord] = []
        for record in reversed(self._records):
            if record.units <= after_units:
                break
            newer.append(record)
        return tuple(reversed(newer))

    def drain(self, node_ids: Iterable[str], now: datetime) -> None:
        """Stop training and save, where one of these nodes trains."""
        asked = set(node_ids)
        self._asked |= asked
        if self._gang is not None and asked.intersection(self._gang.node_ids):
            self._drained_at = min(self._drained_at, now)
            self._fleet_version = -1
            self.settle(now)

    def drained(self) -> frozenset[str]:
        """Nodes that were asked to drain and train no more."""
        training = () if self._gang is None else self._gang.node_ids
        return frozenset(self._asked.difference(training))

    def _schedule_next_event(self, gang: SimulatedGang) -> None:
        """Set when the gang stops on purpose and when it breaks, by the fleet's announcements."""
        self._fleet_version = self._fleet.version
        self._stops_at, self._dies_at = self._drained_at, END_OF_TIME
        for node_id in gang.node_ids:
            ending = self._fleet.ending(node_id)
            if ending is None:
                continue
            if ending.at < self._dies_at:
                self._dies_at, self._dies_with = ending.at, node_id
            if ending.notice is not None and ending.notice >= self._save:
                self._stops_at = min(self._stops_at, ending.at - self._save)

    def _saved_after_stop_at(self, gang: SimulatedGang) -> datetime:
        """When the work done until the stop is durable: at once where nothing is unsaved."""
        if self._stops_at is END_OF_TIME:
            return END_OF_TIME
        unsaved = gang.done_at(self._stops_at) > gang.saved_at(self._stops_at)
        return self._stops_at + self._save if unsaved else self._stops_at

    def _state(self, gang: SimulatedGang, now: datetime) -> GangState:
        if now >= min(self._stops_at, gang.training_ends_at):
            return GangState.STOPPING
        return GangState.STARTING if now < gang.trains_at else GangState.TRAINING

    def _stop(self, gang: SimulatedGang, units: float, at: datetime, message: str) -> None:
        self._append(gang, units, at)
        self._saved_units = max(self._saved_units, units)
        self._message = f"generation {gang.generation} {message}"
        self._gang = None

    def _record(self, gang: SimulatedGang, when: datetime) -> None:
        committed_at = gang.last_saved_at(when)
        if committed_at is not None:
            self._append(gang, gang.saved_at(when), committed_at)

    def _append(self, gang: SimulatedGang, units: float, at: datetime) -> None:
        newest = self._records[-1].units if self._records else 0.0
        if units <= newest:
            return
        checkpoint = self._job.checkpoint
        record = CheckpointRecord(
            units=units,
            uri=f"{checkpoint.uri}/{units:.0f}",
            committed_at=at,
            size_bytes=round(checkpoint.size_gib * 2**30),
            save_s=checkpoint.save_s,
            generation=gang.generation,
        )
        self._records.append(record)


TINY_S = 1e-6
"""One tick of datetime: instants closer than this are the same."""


@dataclass(frozen=True, slots=True)
class SimulatedGang:
    """Nodes that train together from ``trains_at`` on, beginning at ``base_units``.

    Training runs in cycles: ``interval_s`` of work, then a save that blocks it for ``save_s`` and
    makes the work done so far durable when it ends. The last cycle ends with the work. So after
    e seconds, with the cycle z = interval + save and k = ⌊e / z⌋ whole cycles, it has trained
    min(k · interval + min(e − k · z, interval), work) seconds, of which k · interval are saved.
    ``saved_units`` is what is durable at the beginning, where that is less than ``base_units``.
    ``paces`` are (units, share): up to these units the speed is this share of ``units_per_s``;
    beyond the last it is ``units_per_s``.
    """

    generation: int
    node_ids: tuple[str, ...]
    trains_at: datetime
    base_units: float
    amount_units: float
    units_per_s: float
    interval_s: float
    save_s: float
    saved_units: float | None = None
    paces: tuple[tuple[float, float], ...] = ()
    work_s: float = field(init=False)
    training_ends_at: datetime = field(init=False)
    finishes_at: datetime = field(init=False)

    def __post_init__(self) -> None:
        work_s = sum(units / speed for units, speed in self._stretches())
        saves = max(math.ceil(work_s / self.interval_s - 1e-9) - 1, 0)
        ends_at = self.trains_at + timedelta(seconds=work_s + saves * self.save_s)
        object.__setattr__(self, "work_s", work_s)
        object.__setattr__(self, "training_ends_at", ends_at)
        object.__setattr__(self, "finishes_at", ends_at + timedelta(seconds=self.save_s))

    def done_at(self, when: datetime) -> float:
        """Units done by ``when``, saved or not."""
        if when >= self.training_ends_at:
            return self.amount_units
        elapsed_s = (when - self.trains_at).total_seconds()
        if elapsed_s <= 0:
            return self.base_units
        cycles = self._cycles(elapsed_s)
        into_cycle_s = max(elapsed_s - cycles * (self.interval_s + self.save_s), 0.0)
        trained_s = cycles * self.interval_s + min(into_cycle_s, self.interval_s)
        return self._units_after(min(trained_s, self.work_s))

    def speed_at(self, units: float) -> float:
        """Units/s once this much is done."""
        ahead = (share for until_units, share in self.paces if units < until_units)
        return self.units_per_s * next(ahead, 1.0)

    def saved_at(self, when: datetime) -> float:
        """Units durable by ``when``."""
        if when >= self.finishes_at:
            return self.amount_units
        elapsed_s = min(when, self.training_ends_at) - self.trains_at
        cycles = self._cycles(elapsed_s.total_seconds())
        if cycles == 0 and self.saved_units is not None:
            return self.saved_units
        return self._units_after(cycles * self.interval_s)

    def last_saved_at(self, when: datetime) -> datetime | None:
        """When the newest checkpoint of this gang became durable, None before the first."""
        if when >= self.finishes_at:
            return self.finishes_at
        elapsed_s = min(when, self.training_ends_at) - self.trains_at
        cycles = self._cycles(elapsed_s.total_seconds())
        if cycles == 0:
            return None
        return self.trains_at + timedelta(seconds=cycles * (self.interval_s + self.save_s))

    def _stretches(self) -> Iterator[tuple[float, float]]:
        """(units, units/s) of what is ahead at the beginning, speed by speed."""
        at_units = self.base_units
        for until_units, share in (*self.paces, (self.amount_units, 1.0)):
            end_units = min(until_units, self.amount_units)
            if end_units > at_units:
                yield end_units - at_units, share * self.units_per_s
                at_units = end_units

    def _units_after(self, trained_s: float) -> float:
        """Units done after so many seconds of training, without the saves in between."""
        done_units = self.base_units
        for units, speed in self._stretches():
            if trained_s * speed <= units:
                return done_units + trained_s * speed
            done_units, trained_s = done_units + units, trained_s - units / speed
        return done_units

    def _cycles(self, elapsed_s: float) -> int:
        """Whole cycles of work and save; instants a microsecond apart count as one."""
        return max(int((elapsed_s + TINY_S / 2) / (self.interval_s + self.save_s)), 0)


@dataclass(frozen=True, slots=True)
class PhaseSpeeds:
    """Units/s of the last phase, and (units, share of it) up to which the earlier ones run."""

    units_per_s: float
    paces: tuple[tuple[float, float], ...]


def speeds_of(job: Job, machines: Sequence[InstanceType], done_units: float) -> PhaseSpeeds:
    """The mean speed of these machines together in each phase, with its evaluation pauses.

    A phase of which nothing is known on them is done at the speed of the present one. Raises
    BadRequestError where the GPUs differ or the present phase has no known speed on them.
    """
    gpu = machines[0].gpu
    if any(machine.gpu.model != gpu.model for machine in machines):
        models = ", ".join(sorted({machine.gpu.model for machine in machines}))
        raise BadRequestError(f"job {job.name!r}: a gang of different GPU models: {models}")
    present = _units_per_s(job, machines, job.phase_at(done_units))
    if present is None:
        raise BadRequestError(
            f"job {job.name!r}: no throughput is known for {gpu.model}",
            hint="give the job a measured point for it, or FLOPs per unit and an MFU",
        )
    each = [_units_per_s(job, machines, phase) or present for phase in job.phases]
    paces: list[tuple[float, float]] = []
    until_units = 0.0
    for phase, speed in zip(job.phases[:-1], each, strict=False):
        until_units += phase.share * job.work.amount
        paces.append((until_units, speed / each[-1]))
    same = all(share == 1.0 for _, share in paces)
    return PhaseSpeeds(each[-1], () if same else tuple(paces))


def _units_per_s(job: Job, machines: Sequence[InstanceType], phase: Phase) -> float | None:
    gpus = sum(machine.gpu_count for machine in machines)
    speed = job.gpus_units_per_s(machines[0], gpus, phase)
    return None if speed is None or speed.value <= 0 else speed.value
