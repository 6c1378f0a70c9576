"""Checkpoints, and the moves of data and checkpoints between regions."""

from __future__ import annotations

from dataclasses import dataclass

from costopt.domain.events.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCommitted(Event):
    """A checkpoint is durable."""

    kind = "CheckpointCommitted"

    units: float
    uri: str
    size_bytes: int | None
    save_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRefused(Event):
    """A checkpoint was found torn or corrupt and passed over."""

    kind = "CheckpointRefused"

    uri: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointIntervalChanged(Event):
    """From now on the trainers save this often, for this reason."""

    kind = "CheckpointIntervalChanged"

    interval_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DataMoved(Event):
    """The job's data or checkpoint go from one "provider/region" to another, at the list price.

    ``usd_micros`` is None where the price is unknown. ``why`` is "start" or "save".
    """

    kind = "DataMoved"

    from_region: str
    to_region: str
    gib: float
    usd_micros: int | None
    source: str
    why: str
