"""``Provider``, the class to subclass for a cloud, and the values that it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NoReturn

from costopt.domain.account import Quota
from costopt.domain.errors import (
    ForbiddenError,
    NotSupportedError,
    ProviderError,
    ProviderUnavailableError,
    ThrottledError,
)
from costopt.domain.estimate import Estimate
from costopt.domain.fleet import LaunchRequest, Node, NodeBill, ProviderCharge
from costopt.domain.market import Interruption, Offer, Pool
from costopt.domain.notices import spot_notice_s
from costopt.domain.runtime import Runtime
from costopt.provider.setup import AccountSetup

ProviderOptions = Mapping[str, object]


class Capability(StrEnum):
    """What a provider can do besides launching and watching nodes; see ``CAPABILITY_METHODS``."""

    QUOTAS = "quotas"
    BILLS = "bills"
    CHARGES = "charges"
    PRICE_HISTORY = "price_history"
    ACCOUNT_CHECKS = "account_checks"
    ACCOUNT_SETUP = "account_setup"
    ORPHANED_RESOURCES = "orphaned_resources"
    KNOWN_NODES = "known_nodes"
    PARTIAL_FAILURES = "partial_failures"
    SIMULATED_TRAINING = "simulated_training"


CAPABILITY_METHODS: Mapping[Capability, tuple[str, ...]] = {
    Capability.QUOTAS: ("quotas",),
    Capability.BILLS: ("bill",),
    Capability.CHARGES: ("charge",),
    Capability.PRICE_HISTORY: ("price_series", "price_changes", "list_price"),
    Capability.ACCOUNT_CHECKS: ("checks", "access_policies"),
    Capability.ACCOUNT_SETUP: ("account_setup",),
    Capability.ORPHANED_RESOURCES: ("orphaned_resources", "delete_resource"),
    Capability.KNOWN_NODES: ("restore_known_nodes",),
    Capability.PARTIAL_FAILURES: ("unreachable_regions", "errors_by_region"),
    Capability.SIMULATED_TRAINING: ("runtime",),
}
"""The methods that a provider with a capability overrides, all of them."""


@dataclass(frozen=True, slots=True)
class PriceChange:
    """From ``at`` on a node of ``pool`` costs ``usd_per_hour``; None where it is not known."""

    pool: Pool
    at: datetime
    usd_per_hour: float | None


@dataclass(frozen=True, slots=True)
class PriceSeriesKey:
    """The past prices of an instance type in all zones of a region: what one request returns."""

    provider: str
    region: str
    instance_type: str


class CheckStatus(StrEnum):
    """How a check came out."""

    OK = "ok"
    MISSING = "missing"
    BROKEN = "broken"


ALL_LAUNCHES = "*"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. Only BROKEN is a fault: what is MISSING may not be needed.

    ``blocks`` is the region in which no launch can succeed because of it, or ALL_LAUNCHES of the
    provider; "" if launches may.
    """

    name: str
    verdict: CheckStatus
    detail: str
    hint: str | None = None
    blocks: str = ""

    @classmethod
    def broken(cls, name: str, error: ProviderError, blocks: str = "") -> Check:
        """Return the finding of what failed; it blocks nothing if it may succeed the next time."""
        passes = isinstance(error, ProviderUnavailableError | ThrottledError)
        return cls(name, CheckStatus.BROKEN, error.message, error.hint, "" if passes else blocks)

    @classmethod
    def unknown(cls, name: str, error: ProviderError) -> Check:
        """Return the finding for something optional that could not be read."""
        return cls(name, CheckStatus.MISSING, f"not known: {error.message}", error.hint)

    @classmethod
    def of(
        cls,
        name: str,
        ask: Callable[[str], Check],
        *,
        is_optional: bool = False,
        blocks: str = "",
    ) -> Check:
        """Return the finding of ``ask``, which gets the name; where that fails, what failed.

        ``is_optional``: what the credentials may not read is unknown, and no fault.
        """
        try:
            return ask(name)
        except ForbiddenError as error:
            return cls.unknown(name, error) if is_optional else cls.broken(name, error, blocks)
        except ProviderError as error:
            return cls.broken(name, error, blocks)


@dataclass(frozen=True, slots=True)
class OrphanedResource:
    """A thing with our owner tag that no living node uses, such as a volume.

    ``kind`` is the provider's word for it, ``place`` is "provider/region". ``created_at`` is None
    where the provider does not report it. ``usd_per_hour`` is what it costs while it exists, None
    where that is not known. ``serves_job``: the job may need it again as long as it is not over.
    """

    kind: str
    name: str
    place: str
    job: str
    created_at: datetime | None
    usd_per_hour: float | None
    serves_job: bool


class Provider(ABC):
    """The whole cloud behind one interface. Times are aware UTC; prices are dollars per node-hour.

    A subclass implements the abstract methods and overrides the optional ones of each capability
    that it has, all of them: the rest raise NotSupportedError. Every method may raise
    ProviderError; after ProviderUnavailableError the outcome is unknown and the caller asks again.
    """

    @property
    @abstractmethod
    def names(self) -> frozenset[str]:
        """The values of ``Pool.provider`` that this adapter serves."""

    def capabilities(self) -> frozenset[Capability]:
        """The capabilities whose methods this provider overrides; constant for its life."""
        return frozenset(
            capability
            for capability, methods in CAPABILITY_METHODS.items()
            if all(getattr(type(self), each) is not getattr(Provider, each) for each in methods)
        )

    def uninterruptible_s(self, now: datetime) -> float:
        """Return for how many seconds from ``now`` no node can be interrupted; 0 if not known."""
        return 0.0

    def notice_s(self, pool: Pool) -> float:
        """Return the seconds from an interruption's notice to its end, for a node of the pool; 0
        where none comes or it is not known."""
        return spot_notice_s(pool)

    @abstractmethod
    def offers(self, now: datetime) -> Sequence[Offer]:
        """Return every pool that exists, with what is known of it; an unknown price is None."""

    @abstractmethod
    def launch(self, request: LaunchRequest) -> tuple[Node, ...]:
        """Launch all nodes or none; the same key again returns the same nodes and starts nothing.

        Raises NoCapacityError, QuotaExceededError, ForbiddenError, BadRequestError.
        """

    @abstractmethod
    def nodes(self, owner: str) -> tuple[Node, ...]:
        """Return every node with this owner tag, ended ones included for at least an hour."""

    @abstractmethod
    def notices(self, owner: str) -> tuple[Interruption, ...]:
        """Return announced interruptions of living nodes; one may be returned more than once."""

    @abstractmethod
    def terminate(self, node_id: str) -> None:
        """Terminate a node. A missing or ended one is not an error.

        One that is about to be interrupted may be left to the provider where that costs less. Only
        the listing says that a node has ended, so the caller asks again until it does.
        """

    @abstractmethod
    def close(self) -> None:
        """Close connections and stop threads; nodes keep running."""

    def quotas(self, now: datetime) -> tuple[Quota, ...]:
        """QUOTAS: the known quotas of the account, of every region that can be asked."""
        self._refuse("quotas")

    def bill(self, node: Node) -> NodeBill | None:
        """BILLS: the charge for an ended node; None where a price that it needs is not known."""
        self._refuse("bill")

    def charge(
        self, owner: str, job: str, since: datetime, until: datetime
    ) -> ProviderCharge | None:
        """CHARGES: what the provider's own accounts say, days later, that a job's nodes cost.

        None where they hold nothing of nodes with these tags.
        """
        self._refuse("charge")

    def price_series(
        self, region: str, instance_types: Collection[str], now: datetime
    ) -> tuple[PriceSeriesKey, ...]:
        """PRICE_HISTORY: the price series of a region, in a fixed order; see ``price_changes``.

        ``instance_types`` may hold wildcards ("p5*"); a type that the region does not sell is left
        out. Raises BadRequestError for a region that does not exist. This method and the two below
        may be called from several threads at a time.
        """
        self._refuse("price_series")

    def price_changes(
        self, series: PriceSeriesKey, since: datetime, until: datetime
    ) -> tuple[PriceChange, ...]:
        """PRICE_HISTORY: spot price changes of every zone in [since, until), ascending per pool.

        The price in force at ``since``, where one is known, comes as a change at or before it.
        """
        self._refuse("price_changes")

    def list_price(self, series: PriceSeriesKey, now: datetime) -> Estimate | None:
        """PRICE_HISTORY: what a node costs on demand, None where it is not known."""
        self._refuse("list_price")

    def checks(self, owner: str, store: str | None) -> Iterable[Check]:
        """ACCOUNT_CHECKS: credentials, regions, permissions, quotas, images, the store at a URI.

        Whatever fails is a finding, never raised. Nothing is launched or changed.
        """
        self._refuse("checks")

    def access_policies(self, owner: str, store: str | None) -> Mapping[str, object]:
        """ACCOUNT_CHECKS: least-privilege policies by role, in the provider's own format."""
        self._refuse("access_policies")

    def account_setup(self, owner: str, store: str | None) -> AccountSetup:
        """ACCOUNT_SETUP: what the account needs; ``store`` None: one with a name of its own.

        Changes nothing.
        """
        self._refuse("account_setup")

    def orphaned_resources(self, owner: str) -> tuple[OrphanedResource, ...]:
        """ORPHANED_RESOURCES: what has this owner tag, is not a node, and no living node uses."""
        self._refuse("orphaned_resources")

    def delete_resource(self, resource: OrphanedResource) -> None:
        """ORPHANED_RESOURCES: delete it; a missing one is not an error."""
        self._refuse("delete_resource")

    def restore_known_nodes(self, nodes: Iterable[Node]) -> None:
        """KNOWN_NODES: accept the nodes that live by the ledger; ``nodes`` lists them from now on.

        For clouds that list only living nodes: how a node ended while no controller ran is reported
        for known nodes alone. Makes no request.
        """
        self._refuse("restore_known_nodes")

    def unreachable_regions(self) -> frozenset[str]:
        """PARTIAL_FAILURES: regions that the last call of ``nodes`` could not list.

        Nothing is known of nodes of these regions that were not returned. Makes no request.
        """
        self._refuse("unreachable_regions")

    def errors_by_region(self) -> Mapping[str, str]:
        """PARTIAL_FAILURES: what did not answer ("aws us-east-1"), and the reason for a user.

        Of the last calls of ``nodes`` and ``notices``. Makes no request.
        """
        self._refuse("errors_by_region")

    @property
    def runtime(self) -> Runtime:
        """SIMULATED_TRAINING: the runtime that trains on nodes which are mere records."""
        self._refuse("runtime")

    def _refuse(self, method: str) -> NoReturn:
        names = "+".join(sorted(self.names))
        raise NotSupportedError(f"provider {names} does not support {method}", subject=names)


def notice_by_provider(providers: Iterable[Provider], pool: Pool) -> float:
    """Return the notice of the provider that serves a pool; 0 where none does, or it fails."""
    for provider in providers:
        if pool.provider in provider.names:
            with suppress(ProviderError):
                return provider.notice_s(pool)
    return 0.0
