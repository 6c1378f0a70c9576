"""Amazon EC2 as a provider of the engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from costopt.domain.fleet import LaunchRequest, Node, NodeBill, ProviderCharge
from costopt.domain.market import Interruption
from costopt.domain.ports import Clock
from costopt.provider.base import Check, OrphanedResource
from costopt.provider.node_book import NodeBook
from costopt.provider.setup import AccountSetup
from costopt_aws.billing import Billing, CostExplorer
from costopt_aws.bootstrap import AwsBootstrap
from costopt_aws.cleanup import InstanceTerminator, OrphanedResources
from costopt_aws.clients import Clients
from costopt_aws.doctor import Doctor
from costopt_aws.instance_types import InstanceTypes
from costopt_aws.instances import InstanceInventory
from costopt_aws.launch import Ec2Launcher
from costopt_aws.market import AwsMarket, LaunchPrice
from costopt_aws.notices import InterruptionQueue
from costopt_aws.offers import NAME
from costopt_aws.options import AwsOptions
from costopt_aws.setup import AwsSetup


class AwsProvider(AwsMarket):
    """Amazon EC2."""

    def __init__(self, clock: Clock, options: AwsOptions, clients: Clients) -> None:
        super().__init__(clients, options)
        self.options = options
        self.clients = clients
        self._clock = clock
        book = NodeBook()
        self._listing = InstanceInventory(clients, options.regions, book)
        self._orphans = OrphanedResources(clients, options.regions, self._listing)
        self._notices = InterruptionQueue(clients, options.queues, book)
        self._stopping = InstanceTerminator(clients, options.regions, book, self._notices)
        self._billing = Billing(clients, self.zones)
        self._launcher = Ec2Launcher(
            clients,
            self.zones,
            InstanceTypes(clients),
            self.blocks,
            self._listing,
            book,
            options.bootstrap or AwsBootstrap(clients, options),
            LaunchPrice(clients, self),
        )

    @property
    def names(self) -> frozenset[str]:
        """Only "aws"."""
        return frozenset({NAME})

    def launch(self, request: LaunchRequest) -> tuple[Node, ...]:
        """Launch all nodes or none, and none twice; see ``Ec2Launcher``. Raise ProviderError."""
        self.scope.check(request.pool)
        return self._launcher.launch(request, self._clock.now())

    def nodes(self, owner: str) -> tuple[Node, ...]:
        """Return every node with this owner tag; ended nodes for two hours.

        Nodes of a region that does not answer are as last listed, or missing.
        """
        return self._listing.nodes(owner, self._clock.now())

    def notices(self, owner: str) -> tuple[Interruption, ...]:
        """Return the pending interruptions that the queues announced."""
        self._notices.drain()
        return self._notices.pending_notices(owner, self._clock.now())

    def terminate(self, node_id: str) -> None:
        """Terminate a node; see ``InstanceTerminator`` for interruptions in the first hour."""
        self._stopping.terminate(node_id, self._clock.now())

    def rebalance_recommended(self, node_id: str) -> datetime | None:
        """Return when EC2 sent a rebalance recommendation for the node, or None."""
        return self._notices.rebalance_recommended(node_id)

    def orphaned_resources(self, owner: str) -> tuple[OrphanedResource, ...]:
        """Return the owner's volumes, launch templates, placement groups and stopped instances."""
        return self._orphans.list_all(owner)

    def delete_resource(self, resource: OrphanedResource) -> None:
        """Remove one of them; do nothing if it is gone."""
        self._orphans.remove(resource)

    def unreachable_regions(self) -> frozenset[str]:
        """Return the regions that did not answer the last listing of nodes."""
        return frozenset(self._listing.silent)

    def errors_by_region(self) -> Mapping[str, str]:
        """Return the regions and queues that did not answer the last time, and why."""
        regions = {f"{NAME} {region}": e.message for region, e in self._listing.silent.items()}
        queues = {
            f"{NAME} {region} notices": e.message for region, e in self._notices.silent.items()
        }
        left = {
            f"{NAME} {region} leftovers": e.message for region, e in self._orphans.silent.items()
        }
        return {**regions, **queues, **left}

    def bill(self, node: Node) -> NodeBill | None:
        """Return what EC2 charges for an ended node, None if unknown."""
        return self._billing.bill(node)

    def charge(
        self, owner: str, job: str, since: datetime, until: datetime
    ) -> ProviderCharge | None:
        """Return what Cost Explorer reports for the job, None if it knows nothing of it."""
        return CostExplorer(self.clients).charge(owner, job, since, until)

    def checks(self, owner: str, store: str | None) -> Iterator[Check]:
        """Check whether the account can run jobs."""
        return Doctor(self.clients, self.options).checks(owner, store, self._clock.now())

    def access_policies(self, owner: str, store: str | None) -> Mapping[str, object]:
        """Return the IAM policies of the controller and of nodes, and the nodes' trust policy."""
        return Doctor(self.clients, self.options).policies(owner, store)

    def account_setup(self, owner: str, store: str | None) -> AccountSetup:
        """Return what the account needs, as steps."""
        return AwsSetup(self.clients, self.options, owner, store)

    def close(self) -> None:
        """Close the connections."""
        self.clients.close()
