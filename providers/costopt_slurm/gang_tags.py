"""What a batch job carries in its comment, so that any controller knows whose nodes it holds.

Slurm has no tags. A job of ours is named ``costopt-KEY`` and its comment is a JSON object.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from costopt.domain.fleet import LaunchRequest
from costopt.domain.market import Pool
from costopt_slurm.records import BatchJob

NAME = "slurm"
JOB_PREFIX = "costopt-"
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class GangTags:
    """``usd_per_hour`` is the price of a node at launch, ``wait_s`` how long it may wait.

    ``released`` are the numbers of the nodes that the controller has released.
    """

    owner: str
    job: str
    key: str
    pool: str
    nodes: int
    usd_per_hour: float
    wait_s: float
    released: tuple[int, ...] = ()

    @classmethod
    def of_request(cls, request: LaunchRequest, usd_per_hour: float, wait_s: float) -> GangTags:
        """Return the tags of a launch."""
        return cls(
            owner=request.owner,
            job=request.job,
            key=request.key,
            pool=str(request.pool),
            nodes=request.nodes,
            usd_per_hour=usd_per_hour,
            wait_s=wait_s,
        )

    @classmethod
    def of_job(cls, job: BatchJob) -> GangTags | None:
        """Return the tags of a job, None where it is not ours, or its comment is not readable."""
        if not job.name.startswith(JOB_PREFIX):
            return None
        try:
            fields = json.loads(job.comment)
            if fields.pop("costopt") != SCHEMA:
                return None
            fields["released"] = tuple(int(number) for number in fields["released"])
            tags = cls(**fields)
            Pool.parse(tags.pool)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None
        return tags

    def comment(self) -> str:
        """Return the job's comment."""
        return json.dumps({"costopt": SCHEMA, **asdict(self)}, separators=(",", ":"))

    def with_released(self, number: int) -> GangTags:
        """Return the tags with one more node released."""
        return replace(self, released=tuple(sorted({*self.released, number})))


def job_name(key: str) -> str:
    """Return the name of the batch job of a launch."""
    return f"{JOB_PREFIX}{key}"


def node_id(job_id: int, number: int) -> str:
    """Return the name of a node: the job's id and its number in the gang."""
    return f"{job_id}-{number}"


def parse_node_id(text: str) -> tuple[int, int] | None:
    """Return the job's id and the number, None for what is not the name of a node."""
    job_id, _, number = text.partition("-")
    return (int(job_id), int(number)) if job_id.isdecimal() and number.isdecimal() else None
