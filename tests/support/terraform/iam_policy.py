"""What IAM decides about a request, for the operators that our policies use.

The rules: an explicit Deny wins, else one Allow is needed (IAM User Guide, "Policy evaluation
logic"); an operator on a key that the request does not have does not match.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

Policy = Mapping[str, Any]
Context = Mapping[str, str]


def allows(
    policies: Iterable[Policy], action: str, resource: str, context: Context | None = None
) -> bool:
    """Whether these policies together let a principal do ``action`` to ``resource`` (an ARN)."""
    matched = {
        statement["Effect"]
        for policy in policies
        for statement in policy["Statement"]
        if _matches(statement, action, resource, context or {})
    }
    return "Allow" in matched and "Deny" not in matched


def _matches(statement: Mapping[str, Any], action: str, resource: str, context: Context) -> bool:
    if unknown := statement.keys() - {"Sid", "Effect", "Action", "Resource", "Condition"}:
        raise NotImplementedError(f"policy element {unknown}")
    return (
        any(_like(each.lower(), action.lower()) for each in _several(statement["Action"]))
        and any(_like(each, resource) for each in _several(statement["Resource"]))
        and all(
            _holds(operator, key, _several(values), context)
            for operator, keys in statement.get("Condition", {}).items()
            for key, values in keys.items()
        )
    )


def _holds(operator: str, key: str, values: list[str], context: Context) -> bool:
    if key not in context:
        return False
    match operator:
        case "StringEquals":
            return context[key] in [_expanded(value, context) for value in values]
        case "StringLike" | "ArnEquals":
            return any(_like(value, context[key]) for value in values)
    raise NotImplementedError(f"condition operator {operator}")


def _expanded(value: str, context: Context) -> str:
    """With policy variables (IAM User Guide, "Policy variables") as the request has them."""
    return re.sub(r"\$\{([^}]+)\}", lambda found: context.get(found[1], found[0]), value)


def _several(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _like(pattern: str, text: str) -> bool:
    parts = (re.escape(part).replace(r"\?", ".") for part in pattern.split("*"))
    return re.fullmatch(".*".join(parts), text, re.DOTALL) is not None
