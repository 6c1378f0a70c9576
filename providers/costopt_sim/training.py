"""One job's training over its gangs: what is done, what is saved, and what a loss costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from costopt.domain.job import GangState, Job, Progress
from costopt.domain.runtime import CheckpointRecord
from costopt_sim.cursor import END_OF_TIME
from costopt_sim.fleet import SimFleet
from costopt_sim.gang import SimulatedGang


class SimulatedTraining:
    """A gang ends in one of three ways, whichever comes first.

    It finishes the work and saves it. It stops early and saves: because it is drained, or because
    a node was announced to go at least ``save_s`` before, in which case it trains on until
    ``save_s`` before the strike and loses nothing. Or a node goes while something is unsaved, and
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
        """When the gang stops on purpose and when it breaks, as far as the fleet has told."""
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
        self._append(units, at)
        self._saved_units = max(self._saved_units, units)
        self._message = f"generation {gang.generation} {message}"
        self._gang = None

    def _record(self, gang: SimulatedGang, when: datetime) -> None:
        committed_at = gang.last_saved_at(when)
        if committed_at is not None:
            self._append(gang.saved_at(when), committed_at)

    def _append(self, units: float, at: datetime) -> None:
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
        )
        self._records.append(record)
