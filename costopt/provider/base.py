"""The port of a provider: what costopt needs of a cloud, and what a cloud may do besides."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol, runtime_checkable

from costopt.domain.bill import NodeBill, ProviderCharge
from costopt.domain.estimate import Estimate
from costopt.domain.fleet import LaunchRequest, Node
from costopt.domain.market import Interruption, Offer, Pool
from costopt.domain.quota import Quota
from costopt.domain.runtime import Runtime


class Provider(Protocol):
    """The whole cloud behind one interface. Times are aware UTC; prices are dollars per node-hour.

    Every method may raise ``ProviderError``; after ``ProviderUnavailableError`` the outcome is
    unknown and the caller asks again.
    """

    @property
    def names(self) -> frozenset[str]:
        """The values of ``Pool.provider`` that this adapter serves."""
        ...

    def uninterruptible_s(self, now: datetime) -> float:
        """For how long from ``now`` nothing that runs can be interrupted; 0 if not known."""
        ...

    def offers(self, now: datetime) -> Sequence[Offer]:
        """Every pool that exists, with what is known of it; an unknown price is None."""
        ...

    def launch(self, request: LaunchRequest) -> tuple[Node, ...]:
        """All nodes or none; the same key again returns the same nodes and starts nothing.

        Raises NoCapacityError, QuotaExceededError, ForbiddenError, BadRequestError.
        """
        ...

    def nodes(self, owner: str) -> tuple[Node, ...]:
        """Every node with this owner tag, ended ones included for at least an hour."""
        ...

    def notices(self, owner: str) -> tuple[Interruption, ...]:
        """Announced interruptions of living nodes; the same one may be told again."""
        ...

    def terminate(self, node_id: str) -> None:
        """Release a node. A missing or ended one is no error.

        One that is about to be taken may be left to the provider where that costs less. Only the
        listing says that a node is gone, so the caller asks again until it does.
        """
        ...

    def close(self) -> None:
        """Let go of connections and threads; what runs keeps running."""
        ...


@runtime_checkable
class QuotaSource(Protocol):
    """A provider that tells what the account may have at a time."""

    def quotas(self, now: datetime) -> tuple[Quota, ...]:
        """The quotas that are known, of every region that can be asked. Raises ProviderError."""
        ...


@runtime_checkable
class BillSource(Protocol):
    """A provider that knows by which rules and past prices it charges for a node."""

    def bill(self, node: Node) -> NodeBill | None:
        """The charge for an ended node; None where a price that it needs is not known.

        Raises ProviderError.
        """
        ...


@runtime_checkable
class ChargeSource(Protocol):
    """A provider whose own accounts can be asked what a job cost, days later."""

    def charge(
        self, owner: str, job: str, since: datetime, until: datetime
    ) -> ProviderCharge | None:
        """What nodes with these tags cost; None where the accounts hold nothing of them.

        Raises ProviderError.
        """
        ...


@runtime_checkable
class SimulatedProvider(Provider, Protocol):
    """A provider whose nodes are records, so that it must train on them itself."""

    @property
    def runtime(self) -> Runtime:
        """The training runtime that it simulates."""
        ...


ProviderOptions = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class PriceChange:
    """From ``at`` on a node of ``pool`` costs ``usd_per_hour``; None where it is not known."""

    pool: Pool
    at: datetime
    usd_per_hour: float | None


@dataclass(frozen=True, slots=True)
class PriceSeriesKey:
    """The past prices of an instance type in all zones of a region: what is asked for at once."""

    provider: str
    region: str
    instance_type: str


@runtime_checkable
class PriceSource(Protocol):
    """A provider that tells what its spot prices were, which ``costopt market record`` writes down.

    Every method may raise ``ProviderError``; calls may come from several threads at a time.
    """

    def price_series(
        self, region: str, instance_types: Collection[str], now: datetime
    ) -> tuple[PriceSeriesKey, ...]:
        """What can be asked for in a region, in a fixed order.

        ``instance_types`` may hold wildcards ("p5*"); a type that the region does not sell is left
        out. Raises BadRequestError for a region that does not exist.
        """
        ...

    def price_changes(
        self, series: PriceSeriesKey, since: datetime, until: datetime
    ) -> tuple[PriceChange, ...]:
        """Changes of the spot price of every zone in [since, until), ascending for each pool.

        The price in force at ``since``, where one is known, comes as a change at or before it.
        """
        ...

    def list_price(self, series: PriceSeriesKey, now: datetime) -> Estimate | None:
        """What a node costs on demand, or None where it is not known."""
        ...


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


@runtime_checkable
class TracksEndedNodes(Protocol):
    """A provider that lists only living nodes and keeps in mind those that it has seen itself.

    Of what ended while no controller ran it has to be reminded, else the true end is never told.
    """

    def restore_known_nodes(self, nodes: Iterable[Node]) -> None:
        """These live by the ledger: ``nodes`` is to list them, with their end where they ended."""
        ...


@dataclass(frozen=True, slots=True)
class OrphanedResource:
    """A thing with our owner tag that no living node uses, such as a volume.

    ``kind`` is the provider's word for it, ``place`` is "provider/region". ``created_at`` is None
    where the provider does not tell. ``usd_per_hour`` is what it costs while it is there, None
    where that is not known. ``serves_job``: the job may need it again as long as it is not over.
    """

    kind: str
    name: str
    place: str
    job: str
    created_at: datetime | None
    usd_per_hour: float | None
    serves_job: bool


@runtime_checkable
class ResourceCleanup(Protocol):
    """A provider that makes other things than nodes, and can remove them."""

    def orphaned_resources(self, owner: str) -> tuple[OrphanedResource, ...]:
        """Everything with this owner tag that is no node and that no living node uses.

        Raises ProviderError.
        """
        ...

    def delete_resource(self, leftover: OrphanedResource) -> None:
        """Remove it; a missing one is no error. Raises ProviderError."""
        ...


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
