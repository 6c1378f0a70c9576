"""What clouds say of quotas, and what becomes of one that does not."""

from __future__ import annotations

from datetime import UTC, datetime

from costopt.controller.site import provider_quotas
from costopt.domain.account import Quota
from costopt.domain.errors import ForbiddenError
from costopt.provider.base import Capability
from tests.support.stub_provider import StubProvider

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Tells(StubProvider):
    def __init__(self, *quotas: Quota, error: ForbiddenError | None = None) -> None:
        self._quotas, self._error = quotas, error

    def capabilities(self) -> frozenset[Capability]:
        return frozenset({Capability.QUOTAS})

    def quotas(self, now: datetime) -> tuple[Quota, ...]:
        if self._error is not None:
            raise self._error
        return self._quotas


def test_quotas_of_all_that_report_are_joined_and_failures_reported() -> None:
    a, b, error = Quota("a"), Quota("b"), ForbiddenError("may not look")
    reported, failures = provider_quotas(
        [Tells(a), StubProvider(), Tells(error=error), Tells(b)], NOW
    )
    assert reported == (a, b)
    assert failures == (error,)
