"""A provider of which only a part answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable


@runtime_checkable
class PartialFailures(Protocol):
    """A provider of several regions, of which one may be silent while the others answer.

    It goes on with those that answer; what it could not hear is told here, after each call of
    ``nodes`` and ``notices``.
    """

    def unreachable_regions(self) -> frozenset[str]:
        """Regions whose nodes were not listed: of those that are missing nothing is known."""
        ...

    def errors_by_region(self) -> Mapping[str, str]:
        """What did not answer ("aws us-east-1"), and the reason to tell a user."""
        ...
