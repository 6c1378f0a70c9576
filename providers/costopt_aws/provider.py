"""Amazon EC2 as the engine sees it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from costopt.domain.errors import BadRequestError
from costopt.domain.estimate import Estimate
from costopt.domain.fleet import LaunchRequest, Node
from costopt.domain.market import Interruption, Offer
from costopt.domain.ports import Clock, PriceChange, PriceSeries
from costopt.domain.quota import Quota
from costopt_aws.clients import Clients
from costopt_aws.market import AwsMarket
from costopt_aws.options import AwsOptions

NAME = "aws"


class AwsProvider:
    """Implements the Provider port over EC2."""

    def __init__(self, clock: Clock, options: AwsOptions, clients: Clients) -> None:
        self.options = options
        self.clients = clients
        self.market = AwsMarket(clients, options.regions, options.market)
        self._clock = clock

    @property
    def names(self) -> frozenset[str]:
        """Only "aws"."""
        return frozenset({NAME})

    def firm_s(self, now: datetime) -> float:  # noqa: ARG002
        """0: EC2 may take a spot node at any time."""
        return 0.0

    def offers(self, now: datetime) -> Sequence[Offer]:
        """Every pool of the regions; one of which something is unknown says why."""
        return self.market.offers(now)

    def quotas(self, now: datetime) -> tuple[Quota, ...]:
        """What the account may run, by family, capacity type and region."""
        return self.market.quotas(now)

    def price_series(
        self, region: str, instance_types: Collection[str], now: datetime
    ) -> tuple[PriceSeries, ...]:
        """The types of the region that are sold on spot."""
        return self.market.price_series(region, instance_types, now)

    def price_changes(
        self, series: PriceSeries, since: datetime, until: datetime
    ) -> tuple[PriceChange, ...]:
        """Spot prices of the last 90 days at most."""
        return self.market.price_changes(series, since, until)

    def list_price(self, series: PriceSeries, now: datetime) -> Estimate | None:
        """The on-demand list price of one node."""
        return self.market.list_price(series, now)

    def launch(self, request: LaunchRequest) -> tuple[Node, ...]:
        """All nodes or none."""
        raise BadRequestError(f"{request.pool}: nothing can be launched yet")

    def nodes(self, owner: str) -> tuple[Node, ...]:  # noqa: ARG002
        """Every node with this owner tag."""
        return ()

    def notices(self, owner: str) -> tuple[Interruption, ...]:  # noqa: ARG002
        """Interruptions announced and not yet struck."""
        return ()

    def terminate(self, node_id: str) -> None:
        """Release a node."""

    def close(self) -> None:
        """Let go of connections."""
        self.clients.close()
