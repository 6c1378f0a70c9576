"""A provider around another: every method is forwarded, so that no capability can be lost."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from costopt.domain.account import Quota
from costopt.domain.estimate import Estimate
from costopt.domain.fleet import LaunchRequest, Node, NodeBill, ProviderCharge
from costopt.domain.market import Interruption, Offer, Pool
from costopt.domain.runtime import Runtime
from costopt.provider.base import (
    CAPABILITY_METHODS,
    Capability,
    Check,
    OrphanedResource,
    PriceChange,
    PriceSeriesKey,
    Provider,
)
from costopt.provider.setup import AccountSetup

T = TypeVar("T")

CAPABILITY_OF = {method: each for each, methods in CAPABILITY_METHODS.items() for method in methods}


class ProviderWrapper(Provider):
    """Has the names and capabilities of ``raw`` and passes each call of a method to ``_call``.

    A method of a capability that ``raw`` does not declare raises NotSupportedError.
    """

    def __init__(self, raw: Provider) -> None:
        self._raw = raw
        self._names = frozenset(raw.names)
        self._capabilities = frozenset(raw.capabilities())

    @abstractmethod
    def _call(self, method: str, call: Callable[[], T]) -> T:
        """Return what ``call``, that of the wrapped method, returns. Raises ProviderError."""

    def _optional(self, method: str, call: Callable[[], T]) -> T:
        if CAPABILITY_OF[method] not in self.capabilities():
            self._refuse(method)
        return self._call(method, call)

    @property
    def names(self) -> frozenset[str]:
        return self._names

    def capabilities(self) -> frozenset[Capability]:
        return self._capabilities

    def uninterruptible_s(self, now: datetime) -> float:
        return self._call("uninterruptible_s", lambda: self._raw.uninterruptible_s(now))

    def notice_s(self, pool: Pool) -> float:
        return self._call("notice_s", lambda: self._raw.notice_s(pool))

    def offers(self, now: datetime) -> Sequence[Offer]:
        return self._call("offers", lambda: self._raw.offers(now))

    def launch(self, request: LaunchRequest) -> tuple[Node, ...]:
        return self._call("launch", lambda: self._raw.launch(request))

    def nodes(self, owner: str) -> tuple[Node, ...]:
        return self._call("nodes", lambda: self._raw.nodes(owner))

    def notices(self, owner: str) -> tuple[Interruption, ...]:
        return self._call("notices", lambda: self._raw.notices(owner))

    def terminate(self, node_id: str) -> None:
        self._call("terminate", lambda: self._raw.terminate(node_id))

    def close(self) -> None:
        self._call("close", self._raw.close)

    def quotas(self, now: datetime) -> tuple[Quota, ...]:
        return self._optional("quotas", lambda: self._raw.quotas(now))

    def bill(self, node: Node) -> NodeBill | None:
        return self._optional("bill", lambda: self._raw.bill(node))

    def charge(
        self, owner: str, job: str, since: datetime, until: datetime
    ) -> ProviderCharge | None:
        return self._optional("charge", lambda: self._raw.charge(owner, job, since, until))

    def price_series(
        self, region: str, instance_types: Collection[str], now: datetime
    ) -> tuple[PriceSeriesKey, ...]:
        return self._optional(
            "price_series", lambda: self._raw.price_series(region, instance_types, now)
        )

    def price_changes(
        self, series: PriceSeriesKey, since: datetime, until: datetime
    ) -> tuple[PriceChange, ...]:
        return self._optional(
            "price_changes", lambda: self._raw.price_changes(series, since, until)
        )

    def list_price(self, series: PriceSeriesKey, now: datetime) -> Estimate | None:
        return self._optional("list_price", lambda: self._raw.list_price(series, now))

    def checks(self, owner: str, store: str | None) -> Iterable[Check]:
        return self._optional("checks", lambda: self._raw.checks(owner, store))

    def access_policies(self, owner: str, store: str | None) -> Mapping[str, object]:
        return self._optional("access_policies", lambda: self._raw.access_policies(owner, store))

    def account_setup(self, owner: str, store: str | None) -> AccountSetup:
        return self._optional("account_setup", lambda: self._raw.account_setup(owner, store))

    def orphaned_resources(self, owner: str) -> tuple[OrphanedResource, ...]:
        return self._optional("orphaned_resources", lambda: self._raw.orphaned_resources(owner))

    def delete_resource(self, resource: OrphanedResource) -> None:
        self._optional("delete_resource", lambda: self._raw.delete_resource(resource))

    def restore_known_nodes(self, nodes: Iterable[Node]) -> None:
        self._optional("restore_known_nodes", lambda: self._raw.restore_known_nodes(nodes))

    def unreachable_regions(self) -> frozenset[str]:
        return self._optional("unreachable_regions", self._raw.unreachable_regions)

    def errors_by_region(self) -> Mapping[str, str]:
        return self._optional("errors_by_region", self._raw.errors_by_region)

    @property
    def runtime(self) -> Runtime:
        return self._optional("runtime", lambda: self._raw.runtime)
