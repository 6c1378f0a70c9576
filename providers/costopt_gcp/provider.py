"""Google Compute Engine as a provider of the engine, with its market and the project's quotas."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from costopt.domain.account import Quota
from costopt.domain.errors import BadRequestError, ProviderError
from costopt.domain.estimate import Estimate
from costopt.domain.fleet import LaunchRequest, Node, NodeBill, flex_start_offer
from costopt.domain.market import CapacityType, Interruption, Offer, Pool
from costopt.domain.ports import Clock
from costopt.provider.base import (
    Capability,
    Check,
    OrphanedResource,
    PriceChange,
    PriceSeriesKey,
    Provider,
)
from costopt.provider.cache import fan_out_or_raise, split_answers
from costopt.provider.node_book import NodeBook
from costopt_gcp.billing import Billing
from costopt_gcp.bootstrap import GcpBootstrap
from costopt_gcp.cleanup import InstanceTerminator, OrphanedResources
from costopt_gcp.clients import Clients
from costopt_gcp.doctor import Doctor
from costopt_gcp.inventory import InstanceInventory
from costopt_gcp.launch import GceLauncher
from costopt_gcp.launch_request import CompactPlacement
from costopt_gcp.machine_types import MachineTypes
from costopt_gcp.offers import NAME, GceOffers, OfferScope
from costopt_gcp.operations import InstanceEndings, Operations
from costopt_gcp.options import GcpOptions, MarketOptions
from costopt_gcp.prices import GcePrices, SkuPrices
from costopt_gcp.quotas import AccountQuotas, Regions
from costopt_gcp.reservations import Reservations

CAPABILITIES = frozenset(
    {
        Capability.QUOTAS,
        Capability.BILLS,
        Capability.PRICE_HISTORY,
        Capability.ACCOUNT_CHECKS,
        Capability.ORPHANED_RESOURCES,
        Capability.KNOWN_NODES,
        Capability.PARTIAL_FAILURES,
    }
)


class GcpProvider(Provider):
    """Google Compute Engine."""

    def __init__(self, clock: Clock, options: GcpOptions, clients: Clients) -> None:
        self.options = options
        self.clients = clients
        self.market = GcpMarket(clients, options.regions, options)
        self._clock = clock
        self._book = NodeBook()
        operations = Operations(clients)
        self._placement = CompactPlacement(clients, operations, options.compact_placement)
        self._endings = InstanceEndings(operations, options.preemption_notice_s)
        self._listing = InstanceInventory(clients, options.regions, self._book, self._endings)
        self._stopping = InstanceTerminator(clients, self._book)
        self._leftovers = OrphanedResources(clients, options.regions, self._listing, self._stopping)
        self._billing = Billing(self.market.prices)
        self._launcher = GceLauncher(
            clients,
            self.market.regions,
            operations,
            self._endings,
            self._book,
            options.bootstrap or GcpBootstrap(clients, options, options.preemption_notice_s),
            self.market.price_now,
            self._placement,
            self.market.reservations,
            options.asked_notice_s,
        )

    @property
    def names(self) -> frozenset[str]:
        """Only "gcp"."""
        return frozenset({NAME})

    def capabilities(self) -> frozenset[Capability]:
        """Return all but those of clouds that report charges per job, and of simulation."""
        return CAPABILITIES

    def uninterruptible_s(self, now: datetime) -> float:  # noqa: ARG002
        """Return 0: Google may interrupt a Spot node at any time."""
        return 0.0

    def offers(self, now: datetime) -> Sequence[Offer]:
        """Return an offer for every pool of the regions; incomplete offers name the reason."""
        return tuple(
            flex_start_offer(offer, self._book.in_pool(offer.pool), now)
            if offer.pool.capacity_type is CapacityType.FLEX_START
            else offer
            for offer in self.market.offers(now)
        )

    def quotas(self, now: datetime) -> tuple[Quota, ...]:
        """Return what the project may run, by GPU model, capacity type and region."""
        return self.market.quotas(now)

    def price_series(
        self, region: str, instance_types: Collection[str], now: datetime
    ) -> tuple[PriceSeriesKey, ...]:
        """Return the types of the region whose spot prices are published."""
        return self.market.price_series(region, instance_types, now)

    def price_changes(
        self, series: PriceSeriesKey, since: datetime, until: datetime
    ) -> tuple[PriceChange, ...]:
        """Return the spot prices that Google publishes."""
        return self.market.price_changes(series, since, until)

    def list_price(self, series: PriceSeriesKey, now: datetime) -> Estimate | None:
        """The on-demand list price of one node."""
        return self.market.list_price(series, now)

    def launch(self, request: LaunchRequest) -> tuple[Node, ...]:
        """Launch all nodes or none, and none twice; see ``GceLauncher``. Raise ProviderError."""
        regions = self.options.regions
        if request.pool.region not in regions:
            raise BadRequestError(
                f"{request.pool}: region {request.pool.region!r} is not one of those in use",
                hint=f"in use are {', '.join(regions)}",
            )
        return self._launcher.launch(request, self._clock.now())

    def nodes(self, owner: str) -> tuple[Node, ...]:
        """Return every node with this owner label; ended nodes for two hours.

        Nodes of a zone that does not answer are as last listed, or missing. A node that ended
        before this controller started is known if ``restore_known_nodes`` named it.
        """
        return self._listing.nodes(owner, self._clock.now())

    def restore_known_nodes(self, nodes: Iterable[Node]) -> None:
        """Add nodes that may have ended while no controller ran; the zones' operations show how."""
        self._book.remember(nodes)

    def notices(self, owner: str) -> tuple[Interruption, ...]:
        """Return the pending preemptions that the zones' operations announce."""
        now = self._clock.now()
        living = [node for node in self._book.known(owner) if node.state.is_alive]
        spot = [node for node in living if node.pool.capacity_type.is_interruptible]
        self._endings.look({node.pool.zone for node in spot}, now)
        known = filter(None, (self._endings.notice(node, now) for node in spot))
        return tuple(sorted(known, key=lambda notice: (notice.interrupts_at, notice.node_id)))

    def terminate(self, node_id: str) -> None:
        """Terminate a node; do nothing if it is missing."""
        self._stopping.terminate(node_id, self._clock.now())

    def orphaned_resources(self, owner: str) -> tuple[OrphanedResource, ...]:
        """Return the owner's disks, templates, placement policies and stopped instances."""
        return self._leftovers.list_all(owner)

    def delete_resource(self, resource: OrphanedResource) -> None:
        """Remove one of them; do nothing if it is gone."""
        self._leftovers.remove(resource)

    def unreachable_regions(self) -> frozenset[str]:
        """Return the regions of which a zone did not answer the last listing of nodes."""
        return frozenset(self._listing.silent)

    def errors_by_region(self) -> Mapping[str, str]:
        """Return the regions, and zones' operations, that did not answer the last time, and why.

        Zones where a gang was not placed compactly are included.
        """
        regions = {f"{NAME} {region}": e.message for region, e in self._listing.silent.items()}
        zones = {f"{NAME} {zone} notices": e.message for zone, e in self._endings.silent.items()}
        gangs = {f"{NAME} {zone} placement": why for zone, why in self._placement.apart.items()}
        return {**regions, **zones, **gangs}

    def bill(self, node: Node) -> NodeBill | None:
        """Return what Google charges for an ended node, None if unknown."""
        return self._billing.bill(node, self._clock.now())

    def checks(self, owner: str, store: str | None) -> Iterator[Check]:
        """Check whether the project can run jobs."""
        return Doctor(self.clients, self.options).checks(owner, store, self._clock.now())

    def access_policies(self, owner: str, store: str | None) -> Mapping[str, object]:
        """Return the custom roles of the controller and of nodes."""
        return Doctor(self.clients, self.options).policies(owner, store)

    def close(self) -> None:
        """Close the connections."""
        self.clients.close()


class GcpMarket:
    """Offers, quotas and price history of the provider."""

    def __init__(self, clients: Clients, regions: tuple[str, ...], options: MarketOptions) -> None:
        self.regions = Regions(clients)
        types = MachineTypes(clients)
        skus = SkuPrices(clients, self.regions, types)
        self.prices = GcePrices(clients, skus, options.list_prices, options.spot_prices)
        self._named = regions
        scope = OfferScope(regions, options.instance_types, options.advised_nodes)
        self.reservations = Reservations(clients)
        self._offers = GceOffers(
            scope, clients, self.regions, types, self.prices, self.reservations
        )
        self._quotas = AccountQuotas(clients, self.regions)

    def offers(self, now: datetime) -> tuple[Offer, ...]:
        """Return offers for all pools of the regions. Raise ProviderError if none answers."""
        return self._offers.now(now)

    def quotas(self, now: datetime) -> tuple[Quota, ...]:
        """Return the GPU quotas of all regions that answer. Raise ProviderError if none does."""
        answers = fan_out_or_raise(self._named, lambda region: self._quotas.of(region, now))
        known, _ = split_answers(answers)
        regional = tuple(quota for quotas in known.values() for quota in quotas)
        try:
            return (*regional, *self._quotas.everywhere(now))
        except ProviderError:
            return regional

    def price_series(
        self, region: str, instance_types: Collection[str], now: datetime
    ) -> tuple[PriceSeriesKey, ...]:
        """Return the region's types; prices hold in all its zones. Raise ProviderError."""
        sold = self._offers.sold(region, tuple(instance_types), now)
        return tuple(PriceSeriesKey(NAME, region, name) for name in sorted(sold) if "+" not in name)

    def price_changes(
        self, series: PriceSeriesKey, since: datetime, until: datetime
    ) -> tuple[PriceChange, ...]:
        """Return prices of past months; Google publishes them by region, so each zone gets them.

        Raise ProviderError.
        """
        region, name = series.region, series.instance_type
        history = self.prices.history(region, name, until)
        before = [price for price in history if price.at <= since][-1:]
        within = [price for price in history if since < price.at < until]
        zones = self._offers.sold(region, (name,), until).get(name, [])
        return tuple(
            PriceChange(
                Pool(NAME, region, zone, name, CapacityType.SPOT), price.at, price.usd_per_hour
            )
            for zone in zones
            for price in (*before, *within)
        )

    def list_price(self, series: PriceSeriesKey, now: datetime) -> Estimate | None:
        """The on-demand list price of one node."""
        return self.prices.on_demand(series.region, series.instance_type, now)[0]

    def price_now(self, pool: Pool, now: datetime) -> float | None:
        """Return the price of a node launched now; None if unknown."""
        if pool.capacity_type is CapacityType.RESERVED:
            return 0.0
        lookup = {
            CapacityType.SPOT: self.prices.spot,
            CapacityType.ON_DEMAND: self.prices.on_demand,
            CapacityType.FLEX_START: self.prices.flex_start,
        }[pool.capacity_type]
        price = lookup(pool.region, pool.instance_type, now)[0]
        return None if price is None else price.value
