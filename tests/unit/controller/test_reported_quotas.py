"""What clouds say of quotas, and what becomes of one that does not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast

from costopt.controller.site import provider_quotas
from costopt.domain.errors import ForbiddenError
from costopt.domain.quota import Quota
from costopt.provider.base import Provider

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Tells:
    """Of a provider only what is asked here."""

    def __init__(self, *quotas: Quota, error: ForbiddenError | None = None) -> None:
        self._quotas, self._error = quotas, error

    def quotas(self, now: datetime) -> tuple[Quota, ...]:
        if self._error is not None:
            raise self._error
        return self._quotas


def providers(*those: object) -> Sequence[Provider]:
    return cast("Sequence[Provider]", those)


def test_quotas_of_all_that_tell_are_joined_and_failures_told() -> None:
    a, b, error = Quota("a"), Quota("b"), ForbiddenError("may not look")
    told, failures = provider_quotas(
        providers(Tells(a), object(), Tells(error=error), Tells(b)), NOW
    )
    assert told == (a, b)
    assert failures == (error,)
