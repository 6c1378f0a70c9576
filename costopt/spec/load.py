"""Loading of job, policy and account files, and their JSON Schemas for editors and other tools."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from costopt.domain.account import UNLIMITED, Account
from costopt.domain.errors import SpecError
from costopt.domain.job import Job
from costopt.domain.policy import Policy
from costopt.spec.fields import did_you_mean
from costopt.spec.policy_file import bundled_policies, bundled_policy_path

if TYPE_CHECKING:
    from costopt.spec.yaml_document import Document


STARTER_JOB = Path(__file__).with_name("data") / "job.yaml"
"""The commented job file that ``costopt init`` writes."""
FileKind = Literal["job", "policy", "account"]

UNMEASURED_GPU = "K80"
"""Whose time a placeholder states, as it has the least memory: the job may need no more."""

_ONLY_JOB = {
    "work",
    "model",
    "array",
    "deadline",
    "throughput",
    "takes",
    "checkpoint",
    "resources",
    "phases",
    "run",
    "start",
}
_ONLY_POLICY = {"objective", "risk", "strategy", "limits", "rules"}
_ONLY_ACCOUNT = {
    "quotas",
    "tenants",
    "providers",
    "store",
    "owner",
    "prices",
    "discounts",
    "commitments",
    "credits",
}


def load_job(
    path: str | os.PathLike[str],
    now: datetime,
    account: Account = UNLIMITED,
    gpus: str | None = None,
) -> Job:
    """The job of a YAML file. ``now`` is the start where the file names none.

    ``gpus``, such as 8xH100, stands for what the file says of GPU models and their number. Where
    ``account`` names tenants, the job must be one of theirs. A relative checkpoint URI and the
    workdir are resolved against the file's folder; local checkpoint URIs become absolute
    paths. Raises SpecFileError with every problem and its place.
    """
    from costopt.spec.yaml_document import read_document

    return parse_job(read_document(os.fspath(path)), now, account, gpus)


def load_planned_job(
    path: str | os.PathLike[str],
    now: datetime,
    account: Account = UNLIMITED,
    gpus: str | None = None,
) -> Job:
    """As ``load_job``; of a job with a schedule, its next occurrence at or after ``now``."""
    from costopt.spec.yaml_document import read_document

    return parse_planned_job(read_document(os.fspath(path)), now, account, gpus)


def parse_planned_job(
    document: Document, now: datetime, account: Account = UNLIMITED, gpus: str | None = None
) -> Job:
    """As ``load_planned_job``, of a file that has been read."""
    from dataclasses import replace

    from costopt.spec.schedule import next_occurrence

    job = parse_job(document, now, account, gpus)
    found = next_occurrence(document, now)
    if found is None:
        return job
    at, note = found
    return replace(parse_job(document, at, account, gpus), time_notes=(*job.time_notes, note))


def load_unmeasured_job(
    path: str | os.PathLike[str], now: datetime, account: Account = UNLIMITED
) -> Job:
    """As ``load_job``, of a job that is to be measured: its file may say nothing of its speed."""
    from dataclasses import replace

    from costopt.spec.yaml_document import read_document

    document = read_document(os.fspath(path))
    if document.values.keys().isdisjoint(("throughput", "takes", "model", "array")):
        placeholder = {"per": "job", "time": "1d", "on": UNMEASURED_GPU}
        document = replace(document, values={**document.values, "takes": placeholder})
    return parse_job(document, now, account)


def parse_job(
    document: Document, now: datetime, account: Account = UNLIMITED, gpus: str | None = None
) -> Job:
    """As ``load_job``, of a file that has been read."""
    from costopt.spec.fields import parse_section
    from costopt.spec.job_file import (
        ArrayJobFile,
        JobFile,
        ModelJobFile,
        TimedJobFile,
        TrainingJobFile,
    )
    from costopt.spec.job_mapping import job_of

    kinds: dict[str, type[JobFile]] = {
        "array": ArrayJobFile, "model": ModelJobFile, "takes": TimedJobFile
    }  # fmt: skip
    kind = next((kinds[name] for name in kinds if name in document.values), TrainingJobFile)
    file = parse_section(kind, document)
    assert isinstance(file, TrainingJobFile | ModelJobFile | TimedJobFile | ArrayJobFile)
    if gpus is not None:
        file = file.model_copy(update={"resources": file.resources.on(gpus)})
    job = job_of(file, document, now)
    check_tenant(job, document, account)
    return job


def check_tenant(job: Job, document: Document, account: Account) -> None:
    """Refuse a job of a tenant that the account does not name, where it names any: no tenant's
    limit would bind it. Raises SpecFileError."""
    from costopt.spec.yaml_document import SpecFileError

    names = sorted(account.tenants)
    if names and job.tenant not in names:
        # The message is shown to the job's tenant, who learns of no other.
        message = f"{job.tenant!r} is not a tenant of the account"
        raise SpecFileError(
            [document.problem(("tenant",), message, code="unknown_name")],
            hint=f"name one of {', '.join(names)} as tenant in the job file, or add it to the "
            "account file",
        )


def load_policy(path_or_name: str | os.PathLike[str]) -> Policy:
    """The policy of a YAML file, or a shipped one by its name.

    A shipped name is taken as such even where a file of that name exists; ``./name`` is the file.
    Raises SpecFileError with every problem and its place, SpecError for an unknown name.
    """
    from costopt.spec.yaml_document import read_document

    return parse_policy(read_document(_policy_path(os.fspath(path_or_name))))


def parse_policy(document: Document) -> Policy:
    """As ``load_policy``, of a file that has been read."""
    from costopt.spec.fields import parse_section
    from costopt.spec.policy_file import PolicyFile, policy_of

    return policy_of(parse_section(PolicyFile, document), document)


def load_account(path: str | os.PathLike[str]) -> Account:
    """The account of a YAML file. Raises SpecFileError with every problem and its place."""
    from costopt.spec.yaml_document import read_document

    return parse_account(read_document(os.fspath(path)))


def parse_account(document: Document) -> Account:
    """As ``load_account``, of a file that has been read."""
    from costopt.spec.account_file import AccountFile, account_of
    from costopt.spec.fields import parse_section

    return account_of(parse_section(AccountFile, document), document)


def detect_kind(document: Document) -> FileKind:
    """Return whether a file is a job, a policy or an account: by its ``kind``, else by its keys.

    Raises SpecFileError where neither decides it.
    """
    from costopt.spec.yaml_document import SpecFileError

    match document.values.get("kind"):
        case "job":
            return "job"
        case "policy":
            return "policy"
        case "account":
            return "account"
    keys = document.values.keys()
    kinds: dict[FileKind, set[str]] = {
        "job": _ONLY_JOB, "policy": _ONLY_POLICY, "account": _ONLY_ACCOUNT
    }  # fmt: skip
    like = {kind: len(keys & own) for kind, own in kinds.items()}
    likest = [kind for kind, count in like.items() if count == max(like.values())]
    if len(likest) > 1:
        message = "is neither a job nor a policy nor an account; say which with kind: job, …"
        raise SpecFileError([document.problem((), message, code="unknown_kind")])
    return likest[0]


def _policy_path(path_or_name: str) -> str:
    names = bundled_policies()
    if path_or_name in names:
        return bundled_policy_path(path_or_name)
    looks_like_path = os.sep in path_or_name or path_or_name.endswith((".yaml", ".yml"))
    if not looks_like_path and not os.path.lexists(path_or_name):
        near = did_you_mean(path_or_name, names)
        raise SpecError(
            f"no policy is named {path_or_name!r}, and no such file exists{near}",
            hint=f"use one of {', '.join(names)}, or the path of a policy file",
            code="unknown_name",
            subject=path_or_name,
        )
    return path_or_name


DIALECT = "https://json-schema.org/draft/2020-12/schema"


def job_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of job.yaml."""
    from costopt.spec.job_file import JobFile

    return _headed("job", JobFile.model_json_schema())


def policy_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of policy.yaml."""
    from costopt.spec.policy_file import PolicyFile

    return _headed("policy", PolicyFile.model_json_schema())


def account_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of account.yaml."""
    from costopt.spec.account_file import AccountFile

    return _headed("account", AccountFile.model_json_schema())


def cluster_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of cluster.yaml."""
    from costopt.spec.cluster_file import ClusterFile

    return _headed("cluster", ClusterFile.model_json_schema())


def _headed(kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    head = {"$schema": DIALECT, "$id": f"urn:costopt:schema:{kind}:1", "version": 1}
    return {**head, **_closed(schema), "title": f"costopt {kind}"}


def _closed(schema: Any) -> Any:
    """The schema, in which a mapping with a pattern for its keys allows no other keys."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if "patternProperties" in closed:
        closed.setdefault("additionalProperties", False)
    return closed
