"""What the clouds say that the account may have at a time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from costopt.domain.errors import ProviderError
from costopt.domain.ports import Provider, QuotaSource
from costopt.domain.quota import Quota


def provider_quotas(
    providers: Iterable[Provider], now: datetime
) -> tuple[tuple[Quota, ...], tuple[ProviderError, ...]]:
    """The quotas of all providers that tell theirs, and why others that could do not.

    A quota that cannot be read limits nothing here: the provider refuses what goes beyond it.
    """
    quotas: list[Quota] = []
    failures: list[ProviderError] = []
    for provider in providers:
        if isinstance(provider, QuotaSource):
            try:
                quotas += provider.quotas(now)
            except ProviderError as error:
                failures.append(error)
    return tuple(quotas), tuple(failures)
