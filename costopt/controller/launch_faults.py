"""Faults of an account that no other pool would cure, before a run's first launch and during it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from costopt.domain.account import Account
from costopt.domain.errors import BadRequestError, CostoptError, ForbiddenError, ProviderError
from costopt.domain.events import LaunchFailed, NodeLaunched
from costopt.domain.market import Offer, Pool
from costopt.domain.policy import Policy
from costopt.domain.ports import Ledger
from costopt.market.screening import screen_offers
from costopt.provider.base import ALL_LAUNCHES, Capability, Check, Provider

if TYPE_CHECKING:
    from costopt.controller.live_run import LiveRun
    from costopt.controller.site import LiveSite

CONFIGURATION = frozenset({BadRequestError.code, ForbiddenError.code})
"""Errors of a launch that the provider would give again."""
IN_POOLS = 2
"""An error in the same words in so many pools, and in one of them again, is not of a pool: a
strategy goes back to a pool when no other is worth a try."""
RECHECK_S = 300.0
"""Seconds after which an account is checked again during a run: that makes dozens of calls."""


class LaunchFaultError(CostoptError):
    """Nothing can be launched until the account is corrected."""

    code = "account"


@dataclass(slots=True)
class LaunchFaults:
    """Looks at an account for a run under one policy, as `costopt doctor` does.

    ``pools`` are those that the policy allowed when the account was last looked at.
    """

    account: Account
    policy: Policy
    pools: frozenset[Pool] = frozenset()

    def check(self, site: LiveSite) -> None:
        """Raise LaunchFaultError if the account blocks every pool that the policy allows.

        A site without an account, or a provider without checks, is not looked at.
        """
        if site.market is not None:
            return
        now = site.clock.now()
        offers: list[Offer] = []
        for provider in site.providers:
            # One that does not answer is for the run to retry.
            with suppress(ProviderError):
                offers += provider.offers(now)
        self.pools = frozenset(o.pool for o in screen_offers(offers, self.policy, now)[0])
        blocking: list[Check] = []
        for provider in site.providers:
            regions = {pool.region for pool in self.pools if pool.provider in provider.names}
            found = self._blocking(provider, regions)
            if regions and not found:
                return
            blocking += found
        if blocking:
            raise _fault(blocking)

    def _blocking(self, provider: Provider, regions: Collection[str]) -> list[Check]:
        """Return what blocks every launch in these regions, [] if some may succeed."""
        if not regions or Capability.ACCOUNT_CHECKS not in provider.capabilities():
            return []
        checks = provider.checks(self.account.owner, self.account.store)
        found = [c for c in checks if c.blocks == ALL_LAUNCHES or c.blocks in regions]
        blocked = {check.blocks for check in found}
        return found if ALL_LAUNCHES in blocked or blocked >= set(regions) else []

    def watch(self, live: LiveRun) -> Callable[[], None]:
        """Return what raises LaunchFaultError during a run once no launch can be expected to
        succeed; call it after each tick."""
        if live.site.market is not None:
            return lambda: None
        return RepeatedRefusals(live.ledger, live.job.name, self, live.site).check


def _fault(blocking: Sequence[Check]) -> LaunchFaultError:
    first, more = blocking[0], len(blocking) - 1
    hint = "`costopt doctor PROVIDER --account FILE` lists all that is wrong"
    return LaunchFaultError(
        f"nothing can be launched: {first.name}: {first.detail}"
        + (f"; {more} more faults" if more else ""),
        hint=f"{first.hint}; {hint}" if first.hint else hint,
    )


class RepeatedRefusals:
    """Watches a job's launches, and looks at the account again while they are refused for it."""

    def __init__(self, ledger: Ledger, job: str, faults: LaunchFaults, site: LiveSite) -> None:
        self._ledger = ledger
        self._job = job
        self._faults = faults
        self._site = site
        self._seen = max((recorded.seq for recorded in ledger.events(job)), default=0)
        self._looked_s = time.monotonic()
        self._refused: dict[str, Counter[Pool]] = {}

    def check(self) -> None:
        """Raise LaunchFaultError if no other pool can be expected to launch."""
        for recorded in self._ledger.events(self._job, after=self._seen):
            self._seen = recorded.seq
            match recorded.event:
                case NodeLaunched():
                    self._refused.clear()
                case LaunchFailed() as failed if failed.error in CONFIGURATION:
                    self._take(failed)
        if self._refused and time.monotonic() - self._looked_s >= RECHECK_S:
            self._looked_s = time.monotonic()
            self._faults.check(self._site)

    def _take(self, failed: LaunchFailed) -> None:
        pool = Pool.parse(failed.pool)
        refused = self._refused.setdefault(_general(failed.message, pool), Counter())
        refused[pool] += 1
        in_pools = min(IN_POOLS, len(self._faults.pools) or IN_POOLS)
        if len(refused) >= in_pools and max(refused.values()) > 1:
            raise LaunchFaultError(
                f"every pool refuses a launch for the same reason: {failed.message}",
                hint="correct it and run it again: it resumes; `costopt doctor PROVIDER --account "
                "FILE` lists what else it finds",
            )


def _general(message: str, pool: Pool) -> str:
    """Return the message without what is the pool's own."""
    for word in (str(pool), pool.zone, pool.region, pool.instance_type):
        message = message.replace(word, "")
    return " ".join(message.split())
