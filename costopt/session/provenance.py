"""What a checkpoint's manifest is to say of where it came from, sent along to the trainers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from costopt.checkpoint.manifest import CODE_REVISION, POLICY, git_revision
from costopt.domain.job import Job
from costopt.domain.policy import Policy

RevisionOf = Callable[[Path], str | None]


def with_provenance(job: Job, policy: Policy, revision_of: RevisionOf = git_revision) -> Job:
    """The job with its policy's name and its folder's Git revision in its environment.

    What the job file says itself stays. A node knows neither: the folder reaches it as a bundle.
    """
    said = dict(job.env)
    known = {POLICY: policy.name}
    if CODE_REVISION not in said:
        revision = revision_of(Path(job.workdir))
        known |= {} if revision is None else {CODE_REVISION: revision}
    return replace(job, env=tuple((known | said).items()))
