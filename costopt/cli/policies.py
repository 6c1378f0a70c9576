"""Policies as commands name them: read, and checked beyond what their files can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costopt.domain.errors import SpecError

if TYPE_CHECKING:
    from costopt.domain.policy import Policy


def load_checked_policy(name: str) -> Policy:
    """The shipped policy of that name, or the one in that file. Raises SpecError."""
    from costopt.spec import load_policy

    return check_policy(name, load_policy(name))


def check_policy(name: str, policy: Policy) -> Policy:
    """``policy``, if its strategy exists and can keep its limits. Raises SpecError."""
    from costopt.strategies import check

    try:
        check(policy)
    except SpecError as error:
        raise SpecError(
            f"{name}: strategy: {error.message}", hint=error.hint, code=error.code
        ) from None
    return policy
