"""Job, policy, account and cluster files: YAML with source locations, as domain objects."""

from costopt.spec.fields import close_matches, parse_duration_s
from costopt.spec.load import (
    STARTER_JOB,
    FileKind,
    account_schema,
    cluster_schema,
    detect_kind,
    job_schema,
    load_account,
    load_job,
    load_planned_job,
    load_policy,
    load_unmeasured_job,
    parse_account,
    parse_job,
    parse_planned_job,
    parse_policy,
    policy_schema,
)
from costopt.spec.moments import parse_instant
from costopt.spec.policy_file import bundled_policies
from costopt.spec.yaml_document import SpecFileError, SpecProblem

__all__ = [
    "STARTER_JOB",
    "FileKind",
    "SpecFileError",
    "SpecProblem",
    "account_schema",
    "bundled_policies",
    "close_matches",
    "cluster_schema",
    "detect_kind",
    "job_schema",
    "load_account",
    "load_job",
    "load_planned_job",
    "load_policy",
    "load_unmeasured_job",
    "parse_account",
    "parse_duration_s",
    "parse_instant",
    "parse_job",
    "parse_planned_job",
    "parse_policy",
    "policy_schema",
]
