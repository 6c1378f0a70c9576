"""What the trainer tells its agent, through a small file that is replaced atomically."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from costopt.store.durable import replace_nondurable

SCHEMA = 1


class TrainerState(StrEnum):
    """STOPPED: saved and left on notice. FINISHED: all the work is done and saved."""

    STARTING = "starting"
    TRAINING = "training"
    STOPPED = "stopped"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A checkpoint that this trainer committed or restored. ``at`` is wall time, POSIX seconds."""

    name: str
    units: float
    uri: str
    at: float
    size_bytes: int | None = None
    save_s: float | None = None


@dataclass(frozen=True, slots=True)
class RejectedCheckpoint:
    """A checkpoint that was found torn or corrupt and passed over."""

    name: str
    uri: str
    message: str


@dataclass(frozen=True, slots=True)
class TrainerStatus:
    """``units_per_s`` is measured against the wall; ``at`` is wall time, POSIX seconds.

    ``guarantee`` says how exact the resume was. ``checkpoints`` are the newest of this run.
    ``interval_s`` is how often it saves, in the job's time, and ``interval_reason`` why.
    ``upload_bytes_per_s`` is how fast it last made a checkpoint durable. ``step_s`` is the mean
    wall time of a step, ``data_wait_share`` the share of it spent waiting for data, ``goodput`` the
    share of the wall since this process began that went into steps that still count.
    ``saved_units`` are in the object store; near tiers do not count. ``resumed_units`` is what this
    process began with, None before it began or where it does not tell.
    """

    generation: int
    state: TrainerState
    at: float
    done_units: float = 0.0
    saved_units: float = 0.0
    units_per_s: float | None = None
    message: str = ""
    guarantee: str = ""
    checkpoints: tuple[SavedCheckpoint, ...] = ()
    refused: tuple[RejectedCheckpoint, ...] = ()
    interval_s: float | None = None
    interval_reason: str = ""
    upload_bytes_per_s: float | None = None
    step_s: float | None = None
    data_wait_share: float | None = None
    goodput: float | None = None
    resumed_units: float | None = None

    @property
    def measured_upload(self) -> float | None:
        """Bytes per second as the trainer says, else of its newest checkpoint; None before it."""
        if self.upload_bytes_per_s is not None or not self.checkpoints:
            return self.upload_bytes_per_s
        newest = self.checkpoints[-1]
        return newest.size_bytes / newest.save_s if newest.size_bytes and newest.save_s else None

    def write(self, path: Path) -> None:
        """Replace the file. Raises OSError."""
        replace_nondurable(path, json.dumps({"schema": SCHEMA, **asdict(self)}).encode())

    @classmethod
    def read(cls, path: Path) -> TrainerStatus | None:
        """The newest status, or None where there is none that can be understood."""
        try:
            fields = json.loads(path.read_bytes())
            if fields.pop("schema") != SCHEMA:
                return None
            fields["state"] = TrainerState(fields["state"])
            fields["checkpoints"] = tuple(SavedCheckpoint(**c) for c in fields["checkpoints"])
            fields["refused"] = tuple(RejectedCheckpoint(**r) for r in fields["refused"])
            return cls(**fields)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
