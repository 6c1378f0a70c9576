"""Launches: all nodes or none, and never twice.

EC2 encodes which permission a refused launch lacked; it is decoded here if that is allowed.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime

from costopt.domain.errors import (
    BadRequestError,
    ForbiddenError,
    NoCapacityError,
    ProviderError,
    ProviderUnavailableError,
)
from costopt.domain.fleet import LaunchRequest, Node
from costopt.domain.market import CapacityType, Pool
from costopt.provider.launch import CapacityBackoff, IdempotentLauncher, PriceOf, known_price
from costopt.provider.node_book import GRACE, NodeBook
from costopt_aws import instances
from costopt_aws.bootstrap import Bootstrap
from costopt_aws.capacity import CapacityBlocks
from costopt_aws.clients import Clients
from costopt_aws.errors import code_of, map_errors
from costopt_aws.instance_types import InstanceTypeInfo, InstanceTypes
from costopt_aws.instances import InstanceInventory, read_node
from costopt_aws.launch_request import PlacementGroups, RunInstancesRequest
from costopt_aws.launch_templates import LaunchTemplates
from costopt_aws.regions import Zones

_SIZE = re.compile(r"(\d+)xlarge")

TOKEN_PARAMETERS_CHANGED = "IdempotentParameterMismatch"  # noqa: S105
ENDED_BEFORE = "IdempotentInstanceTerminated"
NOT_YET_CONSISTENT = frozenset(
    {
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateName.NotFoundException",
        "InvalidPlacementGroup.Unknown",
    }
)


class Ec2Launcher:
    """RunInstances for a gang in one pool: the requested number of nodes, or none.

    A launch request names one pool, so an EC2 Fleet, which chooses among several, has no choice to
    make here; which pool is next if one has no capacity is the strategy's decision.

    The idempotency key of a request is EC2's client token and a tag. It is looked up before every
    launch, so a launch whose answer was lost is found and not repeated, by another controller too;
    if the list is behind, the token still limits EC2 to one launch.
    """

    def __init__(
        self,
        clients: Clients,
        zones: Zones,
        types: InstanceTypes,
        blocks: CapacityBlocks,
        listing: InstanceInventory,
        book: NodeBook,
        bootstrap: Bootstrap,
        price_of: PriceOf,
    ) -> None:
        self._clients = clients
        self._zones = zones
        self._types = types
        self._blocks = blocks
        self._listing = listing
        self._book = book
        self._bootstrap = bootstrap
        self._price_of = price_of
        self._templates = LaunchTemplates(clients)
        self._groups = PlacementGroups(clients)
        self._once = IdempotentLauncher(
            self._launched, self._order, self._start, CapacityBackoff(_family, _size)
        )

    def launch(self, request: LaunchRequest, now: datetime) -> tuple[Node, ...]:
        """Return the nodes of this key, launched now or before.

        Raise ProviderError; ProviderUnavailableError while it is unknown whether the nodes exist.
        """
        return self._once.launch(request, now)

    def _launched(self, request: LaunchRequest, now: datetime) -> tuple[Node, ...]:
        """Return the nodes of the key if all are known; () if none is or more may appear."""
        known = self._book.by_key(request.owner, request.key)
        if len(known) < request.nodes:
            filters = [
                instances.owner_filter(request.owner),
                instances.launch_key_filter(request.key),
            ]
            known = self._book.see(self._listing.find(request.pool.region, filters), now)
        old = any(now - node.launched_at > GRACE or not node.state.is_alive for node in known)
        return known if old or len(known) >= request.nodes else ()

    def _start(self, order: RunInstancesRequest, now: datetime) -> None:
        self._book.see(self._run(order), now)

    def _order(self, request: LaunchRequest, now: datetime) -> RunInstancesRequest:
        pool = request.pool
        zone_id, zone_name = self._zone(pool)
        facts = self._facts(pool, now)
        setup = self._bootstrap.setup(request)
        close = request.nodes > 1 and facts.efa_interfaces > 0
        return RunInstancesRequest(
            request=request,
            setup=setup,
            template=self._templates.ensure(request, setup),
            zone_name=zone_name,
            subnet_id=setup.subnet_ids.get(zone_id),
            usd_per_hour=known_price(self._price_of, pool, now),
            placement_group=self._groups.ensure(request) if close else None,
            efa_interfaces=facts.efa_interfaces if close else 0,
            reservation_id=self._reservation(request, zone_id, now),
        )

    def _zone(self, pool: Pool) -> tuple[str, str]:
        """Return the zone's id and the account's name of it, whichever of them the pool has."""
        names = self._zones.names(pool.region)
        for zone_id, name in names.items():
            if pool.zone in (zone_id, name):
                return zone_id, name
        raise BadRequestError(
            f"{pool}: {pool.region} has no zone {pool.zone!r}",
            hint=f"the account's zones there are {', '.join(sorted(names))}",
        )

    def _facts(self, pool: Pool, now: datetime) -> InstanceTypeInfo:
        found = self._types.matching(pool.region, (pool.instance_type,), now)
        if pool.instance_type not in found:
            raise BadRequestError(
                f"{pool}: {pool.region} has no instance type {pool.instance_type!r}",
                hint="`costopt market` lists the types of each region",
            )
        return found[pool.instance_type]

    def _reservation(self, request: LaunchRequest, zone_id: str, now: datetime) -> str | None:
        pool = request.pool
        if pool.capacity_type is not CapacityType.RESERVED:
            return None
        booked = self._blocks.of(replace(pool, zone=zone_id), request.nodes, now)
        if booked is None:
            raise NoCapacityError(
                f"{pool}: the account has no Capacity Block there that has begun",
                hint="book one, or allow spot and on-demand",
            )
        return booked.name

    def _run(self, order: RunInstancesRequest) -> tuple[Node, ...]:
        request = order.request
        region = request.pool.region
        try:
            with map_errors("ec2:RunInstances", str(request.pool)):
                response = self._clients.launching(region).run_instances(**order.parameters())
                return tuple(filter(None, (read_node(item) for item in response["Instances"])))
        except (ForbiddenError, BadRequestError) as error:
            to_raise = self._log(order, error)
            if to_raise is error:
                raise
            raise to_raise from error

    def _log(self, order: RunInstancesRequest, error: ProviderError) -> ProviderError:
        if isinstance(error, ForbiddenError):
            return with_missing_action(error, self._clients, order.request.pool.region)
        return self._of_key(order, error)

    def _of_key(self, order: RunInstancesRequest, error: ProviderError) -> ProviderError:
        """Map refusals that concern what was made or launched before, not the request."""
        code, pool = code_of(error), order.request.pool
        if code == TOKEN_PARAMETERS_CHANGED:
            return ProviderUnavailableError(
                f"{pool}: the launch {order.request.key} was asked for before, and its nodes are "
                "not visible yet"
            )
        if code == ENDED_BEFORE:
            return NoCapacityError(f"{pool}: the nodes of launch {order.request.key} have ended")
        if code in NOT_YET_CONSISTENT:
            self._templates.forget(pool.region, order.template)
            self._groups.forget(pool.region, order.placement_group or "")
            return ProviderUnavailableError(
                f"{pool}: not visible in the region yet: {error.message}"
            )
        return error


def _family(instance_type: str) -> str:
    return instance_type.partition(".")[0]


def _size(request: LaunchRequest) -> float:
    """Return nodes times the size in the instance type's name; an "xlarge" is 1."""
    size = request.pool.instance_type.partition(".")[2]
    multiple = _SIZE.fullmatch(size)
    return request.nodes * (float(multiple[1]) if multiple else 1.0)


_ENCODED = re.compile(r"Encoded authorization failure message: ([A-Za-z0-9_-]+)")


def with_missing_action(error: ForbiddenError, clients: Clients, region: str) -> ForbiddenError:
    """Return the error with the action and resource that EC2 encoded into its message.

    Decoding needs sts:DecodeAuthorizationMessage; without it the error is returned unchanged.
    """
    response = getattr(error.__cause__, "response", {})
    encoded = _ENCODED.search(str(response.get("Error", {}).get("Message", "")))
    if encoded is None:
        return error
    try:
        with map_errors("sts:DecodeAuthorizationMessage", region):
            response = clients.reading("sts", region).decode_authorization_message(
                EncodedMessage=encoded[1]
            )
        context = json.loads(response["DecodedMessage"])["context"]
        action, resource = str(context["action"]), str(context["resource"])
    except (ProviderError, KeyError, TypeError, ValueError):
        return error
    return ForbiddenError(
        f"{error.message.partition(':')[0]}: the AWS credentials may not {action} on {resource}",
        hint=f"allow {action} in their policy; `costopt doctor aws --iam-policy` prints all that "
        "costopt needs",
    )
