"""Checks that no two jobs have one checkpoint place: among jobs, and against what a store holds.

The second job in a place would resume from the first one's weights. Links are followed, slashes and
the store's default endpoint do not matter, and a folder below another job's place counts as that.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from costopt.checkpoint.identity import ANOTHER_JOB, JobIdentity, another_job_hint
from costopt.checkpoint.repository import CheckpointRepository
from costopt.domain.errors import CheckpointError, CostoptError, SpecError, StoreError
from costopt.domain.job import Job
from costopt.spec.schedule import is_occurrence
from costopt.store import open_store
from costopt.store.address import StoreAddress
from costopt.store.backends import find_endpoint
from costopt.store.guarantees import UNSAFE, ensure_guarantees

Place = tuple[str, ...]
"""The kind of store, its endpoint and bucket, then the folders down to the checkpoints."""


def job_identity(job: Job, owner: str = "") -> JobIdentity:
    """Return the job as its checkpoints name it; ``owner`` is that of its account, if known."""
    return JobIdentity(owner, job.tenant, job.name)


def check_distinct_places(jobs: Iterable[Job], store: str | None = None) -> None:
    """Raise SpecError if two different jobs have one checkpoint place, or one inside the other.

    In the ``store`` of an account each job has a folder of its own in place of one of this machine.
    """
    placed = [_Placed.of(job) for job in jobs if store is None or not is_folder_place(job)]
    for number, each in enumerate(placed):
        each.check_beside(placed[:number])


def check_place(job: Job, others: Iterable[Job]) -> None:
    """Raise SpecError if the job's checkpoint place is that of another job, or overlaps with it."""
    _Placed.of(job).check_beside(map(_Placed.of, others))


class _Placed(NamedTuple):
    job: Job
    place: Place | None

    @classmethod
    def of(cls, job: Job) -> _Placed:
        return cls(job, _place(job))

    def check_beside(self, others: Iterable[_Placed]) -> None:
        rival = next((each for each in others if self._overlaps(each)), None)
        if rival is None:
            return
        job, other = self.job, rival.job
        theirs, uri = job_identity(other).describe(job_identity(job)), other.checkpoint.uri
        same = self.place == rival.place
        where = f"to {uri}" if same else f"one inside the other: {job.checkpoint.uri} and {uri}"
        raise SpecError(
            f"job {job.name!r} and {theirs} both save {where}",
            hint=another_job_hint(uri, other.name, job.name),
            code=ANOTHER_JOB,
            subject=job.name,
        )

    def _overlaps(self, other: _Placed) -> bool:
        if self.place is None or other.place is None:
            return False
        shorter = min(len(self.place), len(other.place))
        if self.place[:shorter] != other.place[:shorter]:
            return False
        ours, theirs = self.job, other.job
        related = is_occurrence(ours.name, theirs.name) or is_occurrence(theirs.name, ours.name)
        return job_identity(ours).is_other(job_identity(theirs)) and not related


def check_stored_identity(job: Job, owner: str) -> None:
    """Raise SpecError if the job's checkpoint place holds another job's checkpoints.

    Where the store does not answer, the trainer finds out.
    """
    if job.array is not None:
        return
    identity = job_identity(job, owner)
    try:
        CheckpointRepository.open(_uri(job), identity).candidates()
    except CheckpointError as error:
        if error.code == ANOTHER_JOB:
            raise SpecError(
                error.message, hint=error.hint, code=error.code, subject=job.name
            ) from error
    except CostoptError:
        return


def check_checkpoint_store(job: Job) -> None:
    """Raise StoreError if the store of the job's checkpoints does not guarantee what HEAD needs.

    Where this machine cannot write there, the trainer finds out.
    """
    if job.array is not None or is_folder_place(job):
        return
    try:
        ensure_guarantees(open_store(job.checkpoint.uri))
    except CostoptError as error:
        if error.code == UNSAFE:
            raise


def is_folder_place(job: Job) -> bool:
    """Whether the job saves into a folder of this machine."""
    return "://" not in job.checkpoint.uri or job.checkpoint.uri.startswith("file:")


def _uri(job: Job) -> str:
    uri = job.checkpoint.uri
    return uri if "://" in uri else str(Path(job.workdir, uri))


def _place(job: Job) -> Place | None:
    """Return the place; None for an array, which has none, and for what is not an address."""
    try:
        address = None if job.array is not None else StoreAddress.parse(_uri(job))
    except StoreError:
        return None
    if address is None:
        return None
    if address.scheme == "file":
        return ("file", "", "", *Path(os.path.realpath(address.path)).parts)
    endpoint = (find_endpoint(address) or "").rstrip("/").lower()
    return (address.scheme, endpoint, address.bucket, *filter(None, address.path.split("/")))
