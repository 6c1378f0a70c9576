"""Job, policy and account files: YAML, checked with the place of every problem, then domain."""

from costopt.spec.duration import parse_duration_s
from costopt.spec.instant import parse_instant
from costopt.spec.load import (
    FileKind,
    detect_kind,
    load_account,
    load_job,
    load_policy,
    parse_account,
    parse_job,
    parse_policy,
)
from costopt.spec.nearest import close_matches
from costopt.spec.problem import SpecFileError, SpecProblem
from costopt.spec.schema import account_schema, job_schema, policy_schema
from costopt.spec.shipped import bundled_policies

__all__ = [
    "FileKind",
    "SpecFileError",
    "SpecProblem",
    "account_schema",
    "bundled_policies",
    "close_matches",
    "detect_kind",
    "job_schema",
    "load_account",
    "load_job",
    "load_policy",
    "parse_account",
    "parse_duration_s",
    "parse_instant",
    "parse_job",
    "parse_policy",
    "policy_schema",
]
