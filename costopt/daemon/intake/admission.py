"""Checks a submission and plans whether its job can meet the deadline.

A Submission is made from the texts of a job and a policy, and a Job from a Submission. The
admission plan uses the market as the last tick saw it. A job may name only its tenant's places in
object stores, and a job from elsewhere only allowed folders of the daemon's machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from threading import Lock
from urllib.parse import urlsplit

from costopt.catalog import load_catalog
from costopt.controller.account_site import CHECKPOINTS
from costopt.daemon.intake.impact import ImpactResult, plan_impact
from costopt.daemon.shared_state import SharedState
from costopt.daemon.watch.forecasts import LearnedForecasters
from costopt.domain.account import Account
from costopt.domain.control import Submission
from costopt.domain.errors import CostoptError, InfeasibleError, SpecError, StoreError
from costopt.domain.job import Job
from costopt.domain.plan import Plan
from costopt.domain.policy import Policy
from costopt.optimize.planner import plan
from costopt.optimize.request import build_request
from costopt.planning.request import (
    build_view,
    check_policy,
    plan_with_patience,
    raise_if_infeasible,
)
from costopt.spec import parse_job, parse_policy
from costopt.spec.load import check_tenant
from costopt.spec.moments import zoneless_fields
from costopt.spec.policy_file import bundled_policies, bundled_policy_path
from costopt.spec.yaml_document import (
    Document,
    FieldPath,
    SpecFileError,
    SpecProblem,
    parse_document,
)
from costopt.store.address import REMOTE_SCHEMES, StoreAddress, join_uri

JOB_FILE = "job.yaml"
POLICY_FILE = "policy.yaml"


@dataclass(frozen=True, slots=True)
class AdmittedJob:
    """A job of a submission, with the policy that it follows. ``document`` is its file."""

    submission: Submission
    job: Job
    policy: Policy
    document: Document = field(repr=False, compare=False)


def admit_job(
    job_document: str, policy_document: str, workdir: str, who: str, priority: int, now: datetime
) -> AdmittedJob:
    """Return the job of two texts, which are checked; a shipped policy's name becomes its text.

    Raise SpecFileError with every problem and its place, or SpecError.
    """
    policy_text = _policy_text(policy_document)
    document, job = _job(job_document, workdir, now)
    _check_zones(document)
    submission = Submission(
        job.name, job.tenant, priority, job_document, policy_text, workdir, now, who
    )  # fmt: skip
    return AdmittedJob(submission, job, _policy(policy_text, workdir), document)


def _check_zones(document: Document) -> None:
    """Raise SpecFileError for an hour without its zone: the sender's need not be this machine's."""
    message = "the time zone is missing: add one, such as Europe/Berlin, or use costopt submit"
    problems = [
        document.problem((name,), message, code="moment")
        for name, _ in zoneless_fields(document.values)
    ]
    if problems:
        raise SpecFileError(problems)


def load_submission(submission: Submission) -> AdmittedJob:
    """Return the job and policy of a submission, with times counted from its submission.

    Raise SpecError if this version of costopt cannot read them.
    """
    workdir = submission.workdir
    document, job = _job(submission.job_document, workdir, submission.submitted_at)
    return AdmittedJob(submission, job, _policy(submission.policy_document, workdir), document)


def check_account(admitted: AdmittedJob, account: Account) -> None:
    """Raise SpecError if ``account`` does not name the job's tenant, or if the job names places
    that are not its tenant's."""
    check_tenant(admitted.job, admitted.document, account)
    check_storage_locations(admitted.job, admitted.document, account)


def _job(text: str, workdir: str, now: datetime) -> tuple[Document, Job]:
    document = parse_document(text, str(Path(workdir, JOB_FILE)))
    return document, parse_job(document, now)


@lru_cache(maxsize=256)
def _policy(text: str, workdir: str) -> Policy:
    """Return the policy; cached, as many jobs follow the same one."""
    file = str(Path(workdir, POLICY_FILE))
    return check_policy(file, parse_policy(parse_document(text, file)))


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


PLAN_S = 5.0
LOCK_TIMEOUT_S = 10.0
"""How long a submission waits for other plans, in seconds of the wall clock."""


@dataclass(frozen=True, slots=True)
class AdmissionResult:
    """Whether a job can meet its deadline. ``in_time`` is None if that is unknown or no plan was
    requested; ``why`` gives the reason for None or False.

    The job alone is expected to finish by ``finish_at`` (95th percentile) and to cost ``usd``:
    ``source`` says what this is of.
    """

    in_time: bool | None
    why: str = ""
    finish_at: datetime | None = None
    usd: float | None = None
    source: str = ""


class AdmissionPlanner:
    """Plans one job at a time, in the caller's thread: a tick never waits for it."""

    def __init__(
        self, board: SharedState, account: Account, forecasters: LearnedForecasters | None = None
    ) -> None:
        self._board = board
        self._account = account
        self._forecasters = forecasters or LearnedForecasters(Lock())
        self._planning = Lock()

    def check(self, admitted: AdmittedJob) -> AdmissionResult:
        """Return whether a plan meets the deadline. Raise InfeasibleError if none does."""
        if not self._board.snapshot.offers:
            return AdmissionResult(None, "no prices are known yet")
        if not self._planning.acquire(timeout=LOCK_TIMEOUT_S):
            return AdmissionResult(None, "other jobs are being planned")
        try:
            return self._planned(admitted.job, admitted.policy)
        except InfeasibleError:
            raise
        except CostoptError as error:
            return AdmissionResult(None, error.message)
        finally:
            self._planning.release()

    def impact(self, admitted: AdmittedJob, tenant: str | None = None) -> ImpactResult:
        """Return what the job would change for those that run now, of this tenant if it is named.

        Raise InfeasibleError where no prices are known yet or other jobs are being planned for too
        long, and StaleDataError.
        """
        if not self._board.snapshot.offers:
            raise InfeasibleError("no prices are known yet", hint="ask again after the next tick")
        if not self._planning.acquire(timeout=LOCK_TIMEOUT_S):
            raise InfeasibleError("other jobs are being planned", hint="ask again later")
        job, policy = admitted.job, admitted.policy
        try:
            seen = self._board.snapshot
            if any(view.job.name == job.name for each in seen.views for view in each.jobs):
                raise SpecError(f"job {job.name!r} runs already", hint="give it another name")
            base = build_view((job,), policy, seen.offers, seen.now, self._full_account())
            forecaster = self._forecasters.of(policy)
            return plan_impact(job, policy, base, seen.views, load_catalog(), tenant, forecaster)
        finally:
            self._planning.release()

    def _full_account(self) -> Account:
        """Return the account with the quotas that its providers report."""
        account = self._account
        return replace(account, quotas=(*account.quotas, *self._board.quotas))

    def _planned(self, job: Job, policy: Policy) -> AdmissionResult:
        seen, account = self._board.snapshot, self._full_account()

        def make(each: Job) -> Plan:
            view = build_view((each,), policy, seen.offers, seen.now, account)
            request, forecaster = build_request(view), self._forecasters.of(policy)
            return plan(request, time_limit_s=PLAN_S, explain=False, forecaster=forecaster)

        made = plan_with_patience(job, make)
        raise_if_infeasible(made, job)
        forecast = made.forecast_of(job.name)
        if forecast is None:
            return AdmissionResult(True)
        source = forecast.on_time.source
        return AdmissionResult(True, "", forecast.finish_p95_at, forecast.usd_mean, source)


def check_storage_locations(job: Job, document: Document, account: Account) -> None:
    """Raise SpecFileError if a job keeps checkpoints or data outside its tenant's places.

    Those are below its tenant's prefixes, and its own checkpoint folder in the account's store. The
    error lists every other place that ``document``, the job's file, names. An account without
    tenants allows all places.
    """
    problems = tuple(_problems(job, document, account)) if account.tenants else ()
    if problems:
        raise SpecFileError(problems, hint=_hint(job, account))


def _problems(job: Job, document: Document, account: Account) -> Iterator[SpecProblem]:
    own = _own(job, account)
    named: dict[FieldPath, str] = {
        ("checkpoint", "uri"): job.checkpoint.uri,
        ("data", "uri"): job.data.uri if job.data else "",
        **{("cache", n, "uri"): item.uri for n, item in enumerate(job.cache)},
    }
    for at, address in named.items():
        if urlsplit(address).scheme in REMOTE_SCHEMES:
            refusal = _refusal(address, own, job.tenant)
            if refusal is not None:
                yield document.problem(at, refusal, code="outside_prefixes")


def _own(job: Job, account: Account) -> tuple[StoreAddress, ...]:
    addresses = list(_prefixes(job, account))
    if account.store is not None:
        addresses.append(join_uri(account.store, f"{CHECKPOINTS}/{job.name}"))
    return tuple(StoreAddress.parse(address) for address in addresses)


def _refusal(address: str, own: tuple[StoreAddress, ...], tenant: str) -> str | None:
    try:
        place = StoreAddress.parse(address)
    except StoreError as error:
        return error.message
    if any(each.holds(place) for each in own):
        return None
    return f"{address!r} is outside the places of tenant {tenant}"


def _hint(job: Job, account: Account) -> str:
    prefixes = _prefixes(job, account)
    if prefixes:
        return f"use a place below {' or '.join(prefixes)}"
    return (
        f"add prefixes: to tenant {job.tenant} in the account file; checkpoints of a job whose "
        "checkpoint.uri is a folder go to the account's store"
    )


def _prefixes(job: Job, account: Account) -> tuple[str, ...]:
    tenant = account.tenants.get(job.tenant)
    return () if tenant is None else tenant.prefixes


def check_local_paths(job: Job, allowed: tuple[Path, ...]) -> None:
    """Raise SpecError if a job's code or checkpoints would lie in any other folder of this machine.

    Symbolic links are followed. A value that is not a path (s3://…) passes.
    """
    named = [("workdir", job.workdir), ("checkpoint.uri", job.checkpoint.uri)]
    named += [(f"cache.{n}.uri", item.uri) for n, item in enumerate(job.cache)]
    roots = tuple(root.resolve() for root in allowed)
    for name, place in named:
        if "://" in place and not place.startswith("file://"):
            continue
        path = Path(place.removeprefix("file://")).resolve()
        if not any(path.is_relative_to(root) for root in roots):
            folders = ", ".join(str(root) for root in roots)
            raise SpecError(
                f"{name}: {place} is not in a folder that jobs from elsewhere may use",
                hint=f"put it into {folders} on the daemon's machine, or use an object store",
                code="folder_not_allowed",
            )
