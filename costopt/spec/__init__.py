"""Job, policy and account files: YAML, checked with the place of every problem, then domain."""

from costopt.spec.duration import parse_duration_s
from costopt.spec.instant import parse_instant
from costopt.spec.load import (
    Kind,
    account_in,
    detect_kind,
    job_in,
    load_account,
    load_job,
    load_policy,
    policy_in,
)
from costopt.spec.nearest import nearest
from costopt.spec.problem import Problem, SpecFileError
from costopt.spec.schema import account_schema, job_schema, policy_schema
from costopt.spec.shipped import shipped_policies

__all__ = [
    "Kind",
    "Problem",
    "SpecFileError",
    "account_in",
    "account_schema",
    "detect_kind",
    "job_in",
    "job_schema",
    "load_account",
    "load_job",
    "load_policy",
    "nearest",
    "parse_duration_s",
    "parse_instant",
    "policy_in",
    "policy_schema",
    "shipped_policies",
]
