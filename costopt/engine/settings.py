"""The settings of the engine that belong to no job or policy, and ``World``, its ports."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from costopt.domain.account import UNLIMITED, Account
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
from costopt.domain.transfers import TransferPrices
from costopt.provider.base import Provider, notice_by_provider

DEFAULT_TICK_S = 60.0
DEFAULT_PATIENCE_S = 3600.0
DEFAULT_COOLDOWN_S = 300.0
"""In live runs and in replays."""


def random_key(job: str, number: int) -> str:
    """Return an idempotency key that no other run of the same job will use."""
    return f"{job}-{number:04d}-{secrets.token_hex(4)}"


def deterministic_key(job: str, number: int) -> str:
    """Return an idempotency key that is the same in every replay."""
    return f"{job}-{number:04d}"


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Seconds are those of the engine's clock, unless stated otherwise.

    ``grace_s``: how long a launch whose answer was lost may stay invisible before it is given up.
    ``cooldown_s``: how long a pool is avoided after it refused or interrupted a node.
    ``drain_timeout_s``: when a node that does not finish its drain is terminated anyway.
    ``account``: the quotas and tenants that plans and launches respect.
    ``report_timeout_s``: the minimum time that a running node may go without a report before it is
    given up; longer where nodes take long to start.
    ``explain``: whether decisions are recorded with the rejected alternatives.
    ``patience_s``: after how long a waiting tenant goes before all others where capacity is short;
    None: launches are refused in the order of the requests, and nothing is shared.
    ``launch_s``: for how many real seconds a tick begins launches before it leaves the others to
    the next; None: it does them all.
    """

    owner: str = "costopt"
    tick_s: float = DEFAULT_TICK_S
    grace_s: float = 300.0
    cooldown_s: float = DEFAULT_COOLDOWN_S
    drain_timeout_s: float = 300.0
    report_timeout_s: float = 600.0
    account: Account = UNLIMITED
    explain: bool = False
    patience_s: float | None = None
    launch_s: float | None = None
    new_key: Callable[[str, int], str] = random_key


@dataclass(frozen=True, slots=True)
class World:
    """The ports that one engine works with.

    ``transfers`` None: no transfer price is known. ``forecasts`` None: current values are expected
    to persist. ``carbon`` None: no hourly carbon intensity is recorded, annual means count.
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
        """Return the adapter that serves a pool. Raises BadRequestError."""
        for provider in self.providers:
            if pool.provider in provider.names:
                return provider
        raise BadRequestError(
            f"no adapter serves provider {pool.provider!r}",
            hint="install the extra that provides it, or remove the provider from the policy",
        )

    def notice_s(self, pool: Pool) -> float:
        """Return the seconds of notice before a node of the pool is interrupted; 0 if unknown."""
        return notice_by_provider(self.providers, pool)
