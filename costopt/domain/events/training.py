"""Gangs, the work that they do, and the work that is lost with them."""

from __future__ import annotations

from dataclasses import dataclass

from costopt.domain.events.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class GangFormed(Event):
    """These nodes train together under this generation number."""

    kind = "GangFormed"

    generation: int
    node_ids: tuple[str, ...]
    checkpoint_interval_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStarted(Event):
    """The gang does new work from ``at`` on, beginning at ``units``.

    ``units`` are None where its command reports no progress. ``at`` may lie before the end of a
    node that is recorded already: the node trained until then.
    """

    kind = "TrainingStarted"

    generation: int
    units: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStopped(Event):
    """The gang does no more work, having reached ``units``; None where they are unknown."""

    kind = "TrainingStopped"

    generation: int
    units: float | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReported(Event):
    """How far the job is.

    ``speed_ratio`` is the measured speed of the gang over the one that the job file declares for
    it, under its power limits; None where none was measured, or none that can be true.
    """

    kind = "ProgressReported"

    done_units: float
    saved_units: float
    units_per_s: float | None = None
    speed_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkLost(Event):
    """Work done but not saved when the gang broke."""

    kind = "WorkLost"

    units: float
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuaranteeChanged(Event):
    """From now on the job's weights are what an undisturbed run computes, bit for bit ("exact"), or
    only nearly so ("close: " and everything that voided it)."""

    kind = "GuaranteeChanged"

    guarantee: str
