"""What the agent tells its trainer, as environment variables: the contract between the two."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

JOB = "COSTOPT_JOB"
NODE = "COSTOPT_NODE"
GENERATION = "COSTOPT_GENERATION"
NOTICE_FILE = "COSTOPT_NOTICE_FILE"
STATUS_FILE = "COSTOPT_STATUS_FILE"
CHECKPOINT_URI = "COSTOPT_CHECKPOINT_URI"
CHECKPOINT_INTERVAL_S = "COSTOPT_CHECKPOINT_INTERVAL_S"
HAZARD_PER_HOUR = "COSTOPT_HAZARD_PER_HOUR"
NOTICED_SHARE = "COSTOPT_NOTICED_SHARE"
SPEED = "COSTOPT_SPEED"
TOTAL_UNITS = "COSTOPT_TOTAL_UNITS"
DATA_DIR = "COSTOPT_DATA_DIR"
UPLOAD_BYTES_PER_S = "COSTOPT_UPLOAD_BYTES_PER_S"
MEMBERSHIP = "COSTOPT_MEMBERSHIP"
SNAPSHOTS = "COSTOPT_SNAPSHOTS"


@dataclass(frozen=True, slots=True)
class TrainerEnv:
    """Where the trainer saves, reports and looks for notices. All of it may be absent.

    ``notice_file`` exists once the trainer must save and stop. ``checkpoint_interval_s`` and
    ``hazard_per_hour`` (of the whole gang) are in the job's time, which runs ``speed`` times
    faster than the wall; with a hazard the interval is recomputed as save times are measured.
    ``data_dir`` holds the job's data on this node's disk. ``upload_bytes_per_s`` is how fast an
    earlier trainer on this node made a checkpoint durable. ``membership`` is where trainers form
    gangs by themselves ("host:port", or "file:///path" of a file that holds it and the key to it).
    ``snapshots`` is where this node's agent takes and gives snapshots, an abstract Unix socket
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
    noticed_share: float = 0.0
    speed: float = 1.0
    total_units: float | None = None
    data_dir: Path | None = None
    upload_bytes_per_s: float | None = None
    membership: str | None = None
    snapshots: str | None = None

    def variables(self) -> dict[str, str]:
        """The variables to set; those that are unknown are left out."""
        values = {
            JOB: self.job,
            NODE: self.node,
            GENERATION: self.generation,
            NOTICE_FILE: self.notice_file,
            STATUS_FILE: self.status_file,
            CHECKPOINT_URI: self.checkpoint_uri,
            CHECKPOINT_INTERVAL_S: self.checkpoint_interval_s,
            HAZARD_PER_HOUR: self.hazard_per_hour,
            NOTICED_SHARE: self.noticed_share,
            SPEED: self.speed,
            TOTAL_UNITS: self.total_units,
            DATA_DIR: self.data_dir,
            UPLOAD_BYTES_PER_S: self.upload_bytes_per_s,
            MEMBERSHIP: self.membership,
            SNAPSHOTS: self.snapshots,
        }
        return {name: str(value) for name, value in values.items() if value is not None}

    @classmethod
    def read(cls, variables: Mapping[str, str] = os.environ) -> TrainerEnv:
        """The inverse; raises ValueError naming a variable that is not a number."""
        return cls(
            job=variables.get(JOB, ""),
            node=variables.get(NODE, ""),
            generation=int(_number(variables, GENERATION) or 0),
            notice_file=_path(variables, NOTICE_FILE),
            status_file=_path(variables, STATUS_FILE),
            checkpoint_uri=variables.get(CHECKPOINT_URI) or None,
            checkpoint_interval_s=_number(variables, CHECKPOINT_INTERVAL_S),
            hazard_per_hour=_number(variables, HAZARD_PER_HOUR),
            noticed_share=_number(variables, NOTICED_SHARE) or 0.0,
            speed=_number(variables, SPEED) or 1.0,
            total_units=_number(variables, TOTAL_UNITS),
            data_dir=_path(variables, DATA_DIR),
            upload_bytes_per_s=_number(variables, UPLOAD_BYTES_PER_S),
            membership=variables.get(MEMBERSHIP) or None,
            snapshots=variables.get(SNAPSHOTS) or None,
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
