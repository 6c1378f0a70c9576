"""Google Compute Engine as a provider of the engine, with its market and the project's quotas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from costopt.domain.fleet import LaunchRequest, Node, NodeBill, flex_start_offer
from costopt.domain.market import CapacityType, Interruption, Offer, Pool
from costopt.domain.ports import Clock
from costopt.provider.base import Check, OrphanedResource
from costopt.provider.node_book import NodeBook
from costopt.provider.setup import AccountSetup
from costopt_gcp.billing import Billing
from costopt_gcp.bootstrap import GcpBootstrap
from costopt_gcp.cleanup import InstanceTerminator, OrphanedResources
from costopt_gcp.clients import Clients
from costopt_gcp.doctor import Doctor
from costopt_gcp.inventory import InstanceInventory
from costopt_gcp.launch import GceLauncher
from costopt_gcp.launch_request import CompactPlacement
from costopt_gcp.market import GcpMarket
from costopt_gcp.offers import NAME
from costopt_gcp.operations import InstanceEndings, Operations
from costopt_gcp.options import GcpOptions
from costopt_gcp.setup import GcpSetup


class GcpProvider(GcpMarket):
    """Google Compute Engine."""

    def __init__(self, clock: Clock, options: GcpOptions, clients: Clients) -> None:
        super().__init__(clients, options)
        self.options = options
        self.clients = clients
        self._clock = clock
        self._book = NodeBook()
        operations = Operations(clients)
        self._placement = CompactPlacement(clients, operations, options.compact_placement)
        self._endings = InstanceEndings(operations, options.preemption_notice_s)
        self._listing = InstanceInventory(clients, options.regions, self._book, self._endings)
        self._stopping = InstanceTerminator(clients, self._book)
        self._orphans = OrphanedResources(clients, options.regions, self._listing, self._stopping)
        self._billing = Billing(self.prices)
        self._launcher = GceLauncher(
            clients,
            self.regions,
            operations,
            self._endings,
            self._book,
            options.bootstrap or GcpBootstrap(clients, options, options.preemption_notice_s),
            self.price_now,
            self._placement,
            self.reservations,
            options.asked_notice_s,
        )

    @property
    def names(self) -> frozenset[str]:
        """Only "gcp"."""
        return frozenset({NAME})

    def notice_s(self, pool: Pool) -> float:  # noqa: ARG002 - the same for all
        """Return what the account file says, 30 or 120 s."""
        return float(self.options.preemption_notice_s)

    def offers(self, now: datetime) -> Sequence[Offer]:
        """Return an offer for every pool of the regions; incomplete offers name the reason."""
        return tuple(
            flex_start_offer(offer, self._book.in_pool(offer.pool), now)
            if offer.pool.capacity_type is CapacityType.FLEX_START
            else offer
            for offer in super().offers(now)
        )

    def launch(self, request: LaunchRequest) -> tuple[Node, ...]:
        """Launch all nodes or none, and none twice; see ``GceLauncher``. Raise ProviderError."""
        self.scope.check(request.pool)
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
        return self._orphans.list_all(owner)

    def delete_resource(self, resource: OrphanedResource) -> None:
        """Remove one of them; do nothing if it is gone."""
        self._orphans.remove(resource)

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

    def account_setup(self, owner: str, store: str | None) -> AccountSetup:
        """Return what the project needs, as steps."""
        return GcpSetup(self.clients, self.options, owner, store)

    def close(self) -> None:
        """Close the connections."""
        self.clients.close()
