"""What looking into an installation or an account finds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable


class CheckStatus(StrEnum):
    """How a check came out."""

    OK = "ok"
    MISSING = "missing"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. Only BROKEN is a fault: what is MISSING may not be needed."""

    name: str
    verdict: CheckStatus
    detail: str
    hint: str | None = None


@runtime_checkable
class AccountChecks(Protocol):
    """A provider that can tell whether its account is fit, before anything is launched."""

    def checks(self, owner: str, store: str | None) -> Iterator[Check]:
        """Credentials, regions, permissions, quotas, images, and the store at that URI.

        What goes wrong is a finding, never raised. Nothing is launched or changed.
        """
        ...

    def access_policies(self, owner: str, store: str | None) -> Mapping[str, object]:
        """By role, the least that it needs, as the provider's own kind of policy document."""
        ...
