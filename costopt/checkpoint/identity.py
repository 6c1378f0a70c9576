"""Whose checkpoints they are: HEAD, manifests and snapshots name the job that saved them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from costopt.domain.errors import CheckpointError

OWNER = "COSTOPT_OWNER"
TENANT = "COSTOPT_TENANT"
JOB = "COSTOPT_JOB"
ANOTHER_JOB = "another_job"
"""The code of the error of a job whose checkpoint place is another one's."""


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """A job as its checkpoints name it: the owner of its account, its tenant and its name.

    An empty text is unknown. Nothing in it differs between machines, state directories or starts.
    """

    owner: str
    tenant: str
    name: str

    def is_other(self, other: JobIdentity | None) -> bool:
        """Whether the other is certainly another job; what is unknown of either is not compared."""
        if other is None:
            return False
        pairs = zip(self._fields(), other._fields(), strict=True)
        return any(ours and theirs and ours != theirs for ours, theirs in pairs)

    def merged(self, other: JobIdentity | None) -> JobIdentity:
        """Return this job, with what only the other identity of it knows."""
        if other is None:
            return self
        pairs = zip(self._fields(), other._fields(), strict=True)
        return JobIdentity(*(ours or theirs for ours, theirs in pairs))

    def describe(self, beside: JobIdentity) -> str:
        """Return the job for people, with what distinguishes it from the job ``beside``."""
        text = f"job {self.name!r}"
        if self.tenant and self.tenant != beside.tenant:
            text += f" of tenant {self.tenant!r}"
        if self.owner and beside.owner and self.owner != beside.owner:
            text += f" of owner {self.owner!r}"
        return text

    def variables(self) -> dict[str, str]:
        """Return the variables from which ``detect_identity`` reads it."""
        fields = zip((OWNER, TENANT, JOB), self._fields(), strict=True)
        return {name: value for name, value in fields if value}

    def _fields(self) -> tuple[str, str, str]:
        return self.owner, self.tenant, self.name

    @classmethod
    def decode(cls, fields: Any) -> JobIdentity:
        """Return the identity in JSON fields. Raise ValueError if they are of something else."""
        if not isinstance(fields, dict) or not all(isinstance(v, str) for v in fields.values()):
            raise ValueError("the identity of its job is malformed")
        try:
            return cls(**fields)
        except TypeError as error:
            raise ValueError(f"the identity of its job is malformed: {error}") from error


def detect_identity(variables: Mapping[str, str] = os.environ) -> JobIdentity | None:
    """Return the job of this trainer by the agent's variables; None without an agent."""
    owner, name = variables.get(OWNER, ""), variables.get(JOB, "")
    return JobIdentity(owner, variables.get(TENANT, ""), name) if owner and name else None


def another_job_hint(uri: str, other: str, job: str) -> str:
    """Return what to do where the job's place ``uri`` is that of the ``other``."""
    return (
        f"give {job!r} a checkpoint.uri of its own; to begin it with a checkpoint of {other!r}: "
        f"costopt checkpoints branch {uri} CHECKPOINT JOB.yaml"
    )


def another_job_error(uri: str, found: JobIdentity, identity: JobIdentity) -> CheckpointError:
    """Return the error of a job whose checkpoint place holds the checkpoints of another one."""
    theirs, ours = found.describe(identity), identity.describe(found)
    return CheckpointError(
        f"{uri} holds the checkpoints of {theirs}, not of {ours}",
        hint=another_job_hint(uri, found.name, identity.name),
        code=ANOTHER_JOB,
        subject=uri,
    )
