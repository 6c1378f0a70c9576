"""What EC2 says exists, region by region."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from costopt.domain.errors import ProviderError
from costopt.domain.fleet import Node
from costopt.provider.cache import fan_out
from costopt_aws import tags
from costopt_aws.clients import Clients
from costopt_aws.errors import map_errors
from costopt_aws.instance import read_node
from costopt_aws.node_book import KnownNodes

PAGE = 1000


class InstanceInventory:
    """DescribeInstances is the truth; a region that does not answer keeps what it said last."""

    def __init__(self, clients: Clients, regions: tuple[str, ...], book: KnownNodes) -> None:
        self._clients = clients
        self._regions = regions
        self._book = book
        self.silent: Mapping[str, ProviderError] = {}
        """The regions that did not answer the last time, and what went wrong."""

    def nodes(self, owner: str, now: datetime) -> tuple[Node, ...]:
        """Every node of the owner, ended ones for two hours.

        Raises ProviderError where no region answers.
        """
        answers = fan_out(self._regions, lambda region: self._ask(region, owner))
        self.silent = {r: told for r, told in answers.items() if isinstance(told, ProviderError)}
        if len(self.silent) == len(answers):
            raise next(iter(self.silent.values()))
        for region, told in answers.items():
            if not isinstance(told, ProviderError):
                self._book.listed(region, owner, told, now)
        return self._book.known(owner)

    def _ask(self, region: str, owner: str) -> tuple[Node, ...]:
        items = self.items(region, [tags.owner_filter(owner)])
        with map_errors("ec2:DescribeInstances", region):
            return tuple(filter(None, (read_node(item) for item in items)))

    def items(self, region: str, filters: list[dict[str, object]]) -> list[Mapping[str, Any]]:
        """Entries of DescribeInstances. Raises ProviderError."""
        with map_errors("ec2:DescribeInstances", region):
            pages = (
                self._clients.reading("ec2", region)
                .get_paginator("describe_instances")
                .paginate(Filters=filters, PaginationConfig={"PageSize": PAGE})
            )
            return [i for page in pages for r in page["Reservations"] for i in r["Instances"]]
