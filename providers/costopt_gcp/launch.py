"""Launches: all nodes or none, and never twice."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from operator import attrgetter
from typing import Any

from costopt.domain.errors import (
    BadRequestError,
    NoCapacityError,
    ProviderError,
    ProviderUnavailableError,
)
from costopt.domain.fleet import LaunchRequest, Node, NodeState
from costopt.domain.market import CapacityType, Reservation
from costopt.provider.launch import CapacityBackoff, IdempotentLauncher, PriceOf, known_price
from costopt.provider.node_book import NodeBook
from costopt_gcp import instances
from costopt_gcp.bootstrap import Bootstrap
from costopt_gcp.clients import Clients
from costopt_gcp.errors import EXISTS, asking, code_of
from costopt_gcp.instances import read_node
from costopt_gcp.launch_request import CompactPlacement, InsertRequest
from costopt_gcp.machine_types import MachineShape
from costopt_gcp.operations import InstanceEndings, Operations
from costopt_gcp.quotas import Regions
from costopt_gcp.reservations import Reservations

PERMISSION = "compute.instances.create"


class GceLauncher:
    """instances.bulkInsert for a gang in one zone: the requested number of nodes, or none.

    The names of a launch's instances follow from its idempotency key, which is looked up before
    every launch, among the zone's instances and those that its operations report as ended. So a
    launch whose answer was lost is found and not repeated, by another controller too; a launch in
    progress is requested under the same request id, which returns the same operation.
    """

    def __init__(
        self,
        clients: Clients,
        regions: Regions,
        operations: Operations,
        endings: InstanceEndings,
        book: NodeBook,
        bootstrap: Bootstrap,
        price_of: PriceOf,
        placement: CompactPlacement,
        reservations: Reservations,
        notice_s: int | None = None,
    ) -> None:
        self._clients = clients
        self._regions = regions
        self._operations = operations
        self._endings = endings
        self._book = book
        self._bootstrap = bootstrap
        self._price_of = price_of
        self._placement = placement
        self._reservations = reservations
        self._notice_s = notice_s
        backoff = CapacityBackoff(kind=str, size=attrgetter("nodes"))
        self._once = IdempotentLauncher(self._launched, self._order, self._start, backoff)
        self._failed: Counter[str] = Counter()

    def launch(self, request: LaunchRequest, now: datetime) -> tuple[Node, ...]:
        """Return the nodes of this key, launched now or before.

        Raise ProviderError; ProviderUnavailableError while it is unknown whether the nodes exist.
        """
        self._regions.check(request.pool, now)
        return self._once.launch(request, now)

    def _launched(self, request: LaunchRequest, now: datetime) -> tuple[Node, ...]:
        """Return the nodes of the key if all are known; () if none is or more may appear."""
        known = self._book.by_key(request.owner, request.key)
        if len(known) < request.nodes:
            self._book.see(self._found(request), now)
            known = self._book.by_key(request.owner, request.key)
        if len(known) < request.nodes:
            known = (*known, *self._ended(request, known, now))
        return known if len(known) >= request.nodes else ()

    def _found(self, request: LaunchRequest) -> tuple[Node, ...]:
        zone = request.pool.zone
        asked = {
            "project": self._clients.project,
            "zone": zone,
            "filter": instances.launched_by(request.owner, request.key),
        }
        with asking("compute.instances.list", zone):
            items = list(
                self._clients.of("instances").list(request=asked, **self._clients.reading())
            )
        return tuple(filter(None, (read_node(item) for item in items)))

    def _ended(
        self, request: LaunchRequest, known: tuple[Node, ...], now: datetime
    ) -> tuple[Node, ...]:
        """Return nodes of the key that started and ended unseen, by the zone's operations."""
        zone = request.pool.zone
        self._endings.look([zone], now)
        if zone in self._endings.silent:
            raise self._endings.silent[zone]
        there = {node.node_id for node in known}
        names = [name for name in instances.node_names(request) if name not in there]
        waits = request.pool.capacity_type is CapacityType.FLEX_START
        in_vain = self._endings.in_vain if waits else lambda _: None
        ended = {name: in_vain(name) or self._endings.of(name) for name in names}
        nodes = [
            Node(
                node_id=name,
                owner=request.owner,
                job=request.job,
                pool=request.pool,
                key=request.key,
                state=NodeState.ENDED,
                launched_at=self._endings.began_at(name) or ending.at,
                usd_per_hour=known_price(self._price_of, request.pool, now),
                ended_at=ending.at,
                end_cause=ending.cause,
                message=ending.message,
            )
            for name, ending in ended.items()
            if ending is not None
        ]
        return self._book.see(nodes, now)

    def _start(self, order: InsertRequest, now: datetime) -> None:
        """Launch the nodes, close together if that is requested and available."""
        try:
            self._run(order)
        except NoCapacityError as error:
            if order.placement is None or not self._placement.dispensable(order.request, error):
                raise
            self._run(self._order(order.request, now))

    def _order(self, request: LaunchRequest, now: datetime) -> InsertRequest:
        pool = request.pool
        attempt = self._failed[request.key]
        return InsertRequest(
            project=self._clients.project,
            request=request,
            setup=self._bootstrap.setup(request),
            shape=MachineShape.parse(pool.instance_type),
            usd_per_hour=known_price(self._price_of, pool, now),
            notice_s=self._notice_s,
            attempt=attempt,
            placement=self._placement.policy(request, attempt),
            reservation=self._reservation(request, now),
        )

    def _reservation(self, request: LaunchRequest, now: datetime) -> Reservation | None:
        pool = request.pool
        if pool.capacity_type is not CapacityType.RESERVED:
            return None
        held = self._reservations.of(pool, request.nodes, now)
        if held is None:
            raise NoCapacityError(
                f"{pool}: the project has no reservation there that has begun",
                hint="make one that is used by naming it, or allow spot and on-demand",
            )
        return held

    def _run(self, order: InsertRequest) -> Any:
        request = order.request
        about, waits = str(request.pool), request.pool.capacity_type is CapacityType.FLEX_START
        client = self._clients.of("instances")
        call = client.insert_unary if waits else client.bulk_insert_unary
        try:
            with asking(PERMISSION, about):
                operation = call(request=order.parameters(), **self._clients.once())
        except BadRequestError as error:
            if code_of(error) in EXISTS:
                raise _on_its_way(request) from error
            raise
        try:
            if waits:
                # Its operation may go on for as long as the node waits.
                return self._operations.check(operation, PERMISSION, about)
            return self._operations.finished(operation, request.pool.zone, PERMISSION, about)
        except ProviderError as error:
            if error.__cause__ is not None:
                # Only the poll of the operation failed; the launch continues.
                raise ProviderUnavailableError(error.message, hint=error.hint) from error
            self._failed[request.key] += 1
            if any(code in error.message for code in EXISTS):
                raise _on_its_way(request) from error
            raise


def _on_its_way(request: LaunchRequest) -> ProviderUnavailableError:
    return ProviderUnavailableError(
        f"{request.pool}: the launch {request.key} was asked for before, and its nodes are not "
        "visible yet"
    )
