"""EngineSettings, World.

How the engine behaves, apart from any job or policy.

Everything outside the engine, behind ports.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from costopt.domain.account import UNLIMITED, Account
from costopt.domain.errors import BadRequestError
from costopt.domain.job import Job, noticed_share
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
from costopt.provider.base import Provider

DEFAULT_TICK_S = 60.0
DEFAULT_PATIENCE_S = 3600.0
DEFAULT_COOLDOWN_S = 300.0
"""Live and in replays alike."""


def random_key(job: str, number: int) -> str:
    """An idempotency key that no other run of the same job will use."""
    return f"{job}-{number:04d}-{secrets.token_hex(4)}"


def deterministic_key(job: str, number: int) -> str:
    """An idempotency key that is the same in every replay."""
    return f"{job}-{number:04d}"


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Seconds are the clock's.

    ``grace_s``: how long a launch whose answer was lost may stay invisible before it is given up.
    ``cooldown_s``: how long a pool is left alone after it refused or took a node.
    ``drain_timeout_s``: when a node that does not finish its drain is released all the same.
    ``account``: the quotas and tenants that plans and launches keep to.
    ``report_timeout_s``: how long at least a node that runs may not have reported before it is
    given up; longer where nodes take long to start.
    ``notice_s``: how long before an interruption its notice comes; 0 where none does.
    ``explain``: whether decisions are recorded with the alternatives that were weighed.
    ``patience_s``: after how long a tenant that waits goes before all others where there is not
    room for all; None: launches are refused in the order in which they come, and nothing is shared.
    ``launch_s``: for how long, by the wall, a tick begins launches before it leaves the others to
    the next; None: it does them all.
    """

    owner: str = "costopt"
    tick_s: float = DEFAULT_TICK_S
    grace_s: float = 300.0
    cooldown_s: float = DEFAULT_COOLDOWN_S
    drain_timeout_s: float = 300.0
    report_timeout_s: float = 600.0
    notice_s: float = 0.0
    account: Account = UNLIMITED
    explain: bool = False
    patience_s: float | None = None
    launch_s: float | None = None
    new_key: Callable[[str, int], str] = random_key

    def noticed_share_of(self, job: Job) -> float:
        """The share of interruptions on whose notice the job can save."""
        return noticed_share(self.notice_s, job.checkpoint.save_s)


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
