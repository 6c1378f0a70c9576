"""What a trainer and the agent of its node exchange: environment variables and two small files.

The agent sets the variables (``TrainerEnv``) and writes the stop notice; the trainer replaces its
status file atomically.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from costopt.checkpoint.identity import JOB, OWNER, TENANT
from costopt.domain.step_figures import StepFigures
from costopt.domain.text import encodable_text
from costopt.protocol.codec import decode_message, encode_message, parse_fields
from costopt.store.atomic_file import replace_nondurable

NODE = "COSTOPT_NODE"
GENERATION = "COSTOPT_GENERATION"
NOTICE_FILE = "COSTOPT_NOTICE_FILE"
STATUS_FILE = "COSTOPT_STATUS_FILE"
CHECKPOINT_URI = "COSTOPT_CHECKPOINT_URI"
CHECKPOINT_INTERVAL_S = "COSTOPT_CHECKPOINT_INTERVAL_S"
HAZARD_PER_HOUR = "COSTOPT_HAZARD_PER_HOUR"
SAVE_PAID_S = "COSTOPT_SAVE_PAID_S"
NOTICED_SHARE = "COSTOPT_NOTICED_SHARE"
SPEED = "COSTOPT_SPEED"
TOTAL_UNITS = "COSTOPT_TOTAL_UNITS"
DATA_DIR = "COSTOPT_DATA_DIR"
CACHE_DIR = "COSTOPT_CACHE_DIR"
UPLOAD_BYTES_PER_S = "COSTOPT_UPLOAD_BYTES_PER_S"
MEMBERSHIP = "COSTOPT_MEMBERSHIP"
SNAPSHOTS = "COSTOPT_SNAPSHOTS"
TASK = "COSTOPT_TASK"
TASK_ATTEMPT = "COSTOPT_TASK_ATTEMPT"
TASKS = "COSTOPT_TASKS"
RESULT_FILE = "COSTOPT_RESULT_FILE"


@dataclass(frozen=True, slots=True)
class TrainerEnv:
    """Where the trainer saves, reports and looks for notices. Any of it may be absent.

    ``notice_file`` exists once the trainer must save and stop. ``checkpoint_interval_s`` and
    ``hazard_per_hour`` (of the whole gang) are in the job's time, which runs ``speed`` times faster
    than the wall; with a hazard the interval is recomputed as save times are measured, and weighs
    ``save_paid_s``, for how long the gang could train for the dollars of a save. ``data_dir``
    holds the job's data on this node's disk, ``cache_dir`` what its cache names.
    ``upload_bytes_per_s`` is how fast an earlier trainer on this node made a checkpoint durable.
    ``membership`` is where trainers form gangs among
    themselves ("host:port", or "file:///path" of a file that holds the address and its key).
    ``owner`` and ``tenant`` are those of the job, "" if unknown; checkpoints name them.
    ``snapshots`` is where this node's agent stores and serves snapshots, an abstract Unix socket
    ("@name").
    """

    job: str = ""
    node: str = ""
    generation: int = 0
    notice_file: Path | None = None
    status_file: Path | None = None
    checkpoint_uri: str | None = None
    checkpoint_interval_s: float | None = None
    hazard_per_hour: float | None = None
    save_paid_s: float = 0.0
    noticed_share: float = 0.0
    speed: float = 1.0
    total_units: float | None = None
    data_dir: Path | None = None
    cache_dir: Path | None = None
    upload_bytes_per_s: float | None = None
    membership: str | None = None
    snapshots: str | None = None
    owner: str = ""
    tenant: str = ""

    def variables(self) -> dict[str, str]:
        """Return the variables to set; unknown ones are omitted."""
        values = {
            JOB: self.job,
            NODE: self.node,
            OWNER: self.owner or None,
            TENANT: self.tenant or None,
            GENERATION: self.generation,
            NOTICE_FILE: self.notice_file,
            STATUS_FILE: self.status_file,
            CHECKPOINT_URI: self.checkpoint_uri,
            CHECKPOINT_INTERVAL_S: self.checkpoint_interval_s,
            HAZARD_PER_HOUR: self.hazard_per_hour,
            SAVE_PAID_S: self.save_paid_s,
            NOTICED_SHARE: self.noticed_share,
            SPEED: self.speed,
            TOTAL_UNITS: self.total_units,
            DATA_DIR: self.data_dir,
            CACHE_DIR: self.cache_dir,
            UPLOAD_BYTES_PER_S: self.upload_bytes_per_s,
            MEMBERSHIP: self.membership,
            SNAPSHOTS: self.snapshots,
        }
        return {name: str(value) for name, value in values.items() if value is not None}

    @classmethod
    def read(cls, variables: Mapping[str, str] = os.environ) -> TrainerEnv:
        """Return the inverse of ``variables``. Raise ValueError naming a variable that is not a
        number.
        """
        return cls(
            job=variables.get(JOB, ""),
            node=variables.get(NODE, ""),
            generation=int(_number(variables, GENERATION) or 0),
            notice_file=_path(variables, NOTICE_FILE),
            status_file=_path(variables, STATUS_FILE),
            checkpoint_uri=variables.get(CHECKPOINT_URI) or None,
            checkpoint_interval_s=_number(variables, CHECKPOINT_INTERVAL_S),
            hazard_per_hour=_number(variables, HAZARD_PER_HOUR),
            save_paid_s=_number(variables, SAVE_PAID_S) or 0.0,
            noticed_share=_number(variables, NOTICED_SHARE) or 0.0,
            speed=_number(variables, SPEED) or 1.0,
            total_units=_number(variables, TOTAL_UNITS),
            data_dir=_path(variables, DATA_DIR),
            cache_dir=_path(variables, CACHE_DIR),
            upload_bytes_per_s=_number(variables, UPLOAD_BYTES_PER_S),
            membership=variables.get(MEMBERSHIP) or None,
            snapshots=variables.get(SNAPSHOTS) or None,
            owner=variables.get(OWNER, ""),
            tenant=variables.get(TENANT, ""),
        )


def _path(variables: Mapping[str, str], name: str) -> Path | None:
    text = variables.get(name)
    return Path(text) if text else None


def _number(variables: Mapping[str, str], name: str) -> float | None:
    text = variables.get(name)
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name}={text!r} is not a number") from None


HEADER = {"schema": 1}


class TrainerState(StrEnum):
    """STOPPED: saved and left on notice. FINISHED: all the work is done and saved."""

    STARTING = "starting"
    TRAINING = "training"
    STOPPED = "stopped"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A checkpoint that this trainer committed or restored. ``at`` is wall time, POSIX seconds.

    ``generation`` is its gang's, which the agent adds; 0 in what the trainer writes.
    """

    name: str
    units: float
    uri: str
    at: float
    size_bytes: int | None = None
    save_s: float | None = None
    generation: int = 0


@dataclass(frozen=True, slots=True)
class RejectedCheckpoint:
    """A checkpoint that was rejected because it is torn or corrupt."""

    name: str
    uri: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerFigures(StepFigures):
    """What a trainer reports to its agent, and the agent to the controller.

    ``units_per_s`` is measured against wall time. ``saved_units`` are in the object store; nearer
    tiers do not count. ``guarantee`` says how exact the resume was. ``interval_s`` is how often the
    trainer saves, in the job's time, and ``interval_reason`` why.
    """

    done_units: float = 0.0
    saved_units: float = 0.0
    units_per_s: float | None = None
    guarantee: str = ""
    interval_s: float | None = None
    interval_reason: str = ""

    def figures(self) -> dict[str, Any]:
        """Return these figures by name, without those of a subclass."""
        return {each.name: getattr(self, each.name) for each in fields(TrainerFigures)}


@dataclass(frozen=True, slots=True)
class TrainerStatus(TrainerFigures):
    """A trainer's report of its progress; ``at`` is wall time, POSIX seconds.

    ``checkpoints`` are the newest of this run. ``upload_bytes_per_s`` is how fast it last made a
    checkpoint durable. ``resumed_units`` is what this process began with, None before it began or
    if it does not report it.
    """

    generation: int
    state: TrainerState
    at: float
    message: str = ""
    checkpoints: tuple[SavedCheckpoint, ...] = ()
    refused: tuple[RejectedCheckpoint, ...] = ()
    upload_bytes_per_s: float | None = None
    resumed_units: float | None = None

    @property
    def measured_upload(self) -> float | None:
        """Return bytes/s as the trainer reports them, else of its newest checkpoint; None before
        it.
        """
        if self.upload_bytes_per_s is not None or not self.checkpoints:
            return self.upload_bytes_per_s
        newest = self.checkpoints[-1]
        return newest.size_bytes / newest.save_s if newest.size_bytes and newest.save_s else None

    def write(self, path: Path) -> None:
        """Replace the file. Raise OSError if it cannot be written."""
        replace_nondurable(path, encode_message(self, HEADER))

    @classmethod
    def read(cls, path: Path) -> TrainerStatus | None:
        """Return the newest status, or None if there is none that can be parsed."""
        try:
            data = path.read_bytes()
        except OSError:
            return None
        return decode_message(cls, parse_fields(data, encodable_text, HEADER))


@dataclass(frozen=True, slots=True)
class StopNotice:
    """Why and when a trainer must stop; ``deadline_at`` is when the node ends, None if unknown.

    ``deadline_at`` is wall time in POSIX seconds; ``time`` is the same as the provider announced
    it, by its own clock. ``upload_bytes_per_s`` is the speed at which this node last made a
    checkpoint durable, None while it has made none.
    """

    reason: str
    time: str | None = None
    deadline_at: float | None = None
    upload_bytes_per_s: float | None = None
    action: str = "stop"

    def write(self, path: Path) -> None:
        """Replace the file. Raise OSError if it cannot be written."""
        replace_nondurable(path, encode_message(self))

    @classmethod
    def read(cls, path: Path) -> StopNotice | None:
        """Return the notice, or None if there is none; an unreadable file counts as a notice."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError:
            data = b""
        return decode_message(cls, parse_fields(data)) or cls("an unreadable notice")

    def allows(self, size_bytes: int, now: float, *, spare_s: float = 0.0) -> bool | None:
        """Whether an upload that begins ``now`` (wall) ends ``spare_s`` before the node does.

        An upload is feasible if size / bandwidth < the remaining notice period. None if either is
        unknown.
        """
        if self.deadline_at is None or not self.upload_bytes_per_s:
            return None
        return now + size_bytes / self.upload_bytes_per_s < self.deadline_at - spare_s
