"""Jobs on their way in: from texts to a Submission, and from a Submission to a Job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from costopt.daemon.addresses import check_storage_locations
from costopt.domain.account import UNLIMITED, Account
from costopt.domain.errors import SpecError
from costopt.domain.job import Job
from costopt.domain.policy import Policy
from costopt.domain.submission import Submission
from costopt.spec import parse_job, parse_policy
from costopt.spec.document import parse_document
from costopt.spec.shipped import bundled_policies, bundled_policy_path

JOB_FILE = "job.yaml"
POLICY_FILE = "policy.yaml"


@dataclass(frozen=True, slots=True)
class AdmittedJob:
    """A job with the policy that it follows, as its submission says."""

    submission: Submission
    job: Job
    policy: Policy


def parse_submission(
    job_document: str,
    policy_document: str,
    workdir: str,
    who: str,
    priority: int,
    now: datetime,
) -> Submission:
    """Check both texts and make a Submission of them. A shipped policy's name becomes its text.

    Raises SpecFileError with every problem and its place, SpecError.
    """
    policy_text = _policy_text(policy_document)
    job = _job(job_document, workdir, now, UNLIMITED)
    _policy(policy_text, workdir)
    return Submission(job.name, job.tenant, priority, job_document, policy_text, workdir, now, who)


def load_submission(submission: Submission, account: Account = UNLIMITED) -> AdmittedJob:
    """The job and policy of a submission, with times that count from when it was handed in.

    Raises SpecError where this costopt cannot read them any more, ``account`` does not name the
    job's tenant, or the job names places that are none of its tenant's.
    """
    job = _job(submission.job_document, submission.workdir, submission.submitted_at, account)
    return AdmittedJob(submission, job, _policy(submission.policy_document, submission.workdir))


def _job(text: str, workdir: str, now: datetime, account: Account) -> Job:
    document = parse_document(text, str(Path(workdir, JOB_FILE)))
    job = parse_job(document, now, account)
    check_storage_locations(job, document, account)
    return job


@lru_cache(maxsize=256)
def _policy(text: str, workdir: str) -> Policy:
    """Read once: many jobs follow the same."""
    return parse_policy(parse_document(text, str(Path(workdir, POLICY_FILE))))


def _policy_text(name_or_text: str) -> str:
    if "\n" in name_or_text or ":" in name_or_text:
        return name_or_text
    names = bundled_policies()
    if name_or_text not in names:
        raise SpecError(
            f"no policy is named {name_or_text!r}",
            hint=f"use one of {', '.join(names)}, or the text of a policy file",
        )
    return Path(bundled_policy_path(name_or_text)).read_text(encoding="utf-8")
