"""Everything outside the engine, behind ports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from costopt.domain.errors import BadRequestError
from costopt.domain.market import Pool
from costopt.domain.ports import (
    CarbonRecord,
    Clock,
    Forecasts,
    HazardModel,
    InstanceCatalog,
    Ledger,
    PowerModel,
)
from costopt.domain.runtime import Runtime
from costopt.domain.transfer import TransferPrices
from costopt.provider.base import Provider


@dataclass(frozen=True, slots=True)
class World:
    """The ports that one engine works with.

    ``transfers`` None: no price of a transfer is known. ``forecasts`` None: what is, is expected to
    stay. ``carbon`` None: no hour's carbon intensity is recorded, annual means count.
    """

    providers: Sequence[Provider]
    runtime: Runtime
    ledger: Ledger
    clock: Clock
    machines: InstanceCatalog
    powers: PowerModel
    hazards: HazardModel
    transfers: TransferPrices | None = None
    forecasts: Forecasts | None = None
    carbon: CarbonRecord | None = None

    def provider_of(self, pool: Pool) -> Provider:
        """The adapter that serves a pool. Raises BadRequestError."""
        for provider in self.providers:
            if pool.provider in provider.names:
                return provider
        raise BadRequestError(
            f"no adapter serves provider {pool.provider!r}",
            hint="install the extra that brings it, or leave the provider out of the policy",
        )
