"""JSON Schema of the files, for editors and other tools."""

from __future__ import annotations

from typing import Any

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


def _headed(kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    head = {
        "$schema": DIALECT,
        "$id": f"urn:costopt:schema:{kind}:1",
        "version": 1,
    }
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
