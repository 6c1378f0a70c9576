"""The adapter: costopt's ``Provider`` over the cloud's SDK."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial

from costopt.domain.account import Quota
from costopt.domain.errors import (
    BadRequestError,
    NoCapacityError,
    ProviderError,
    ProviderUnavailableError,
)
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.fleet import EndCause, LaunchRequest, Node, NodeState
from costopt.domain.market import ON_DEMAND_HAZARD, CapacityType, Interruption, Offer, Pool
from costopt.domain.ports import Clock
from costopt.provider.base import Provider
from costopt.provider.cache import TtlCache
from costopt.provider.launch import CapacityBackoff, IdempotentLauncher
from costopt_skeleton.cloud import (
    INSTANCE_TYPE,
    MAX_INSTANCES,
    NOTICE,
    USD_PER_HOUR,
    Cloud,
    CloudError,
    Instance,
)
from costopt_skeleton.options import SkeletonOptions

NAME = "skeleton"
PRICE_TTL_S = 300.0
ERRORS: dict[str, type[ProviderError]] = {
    "NotFound": BadRequestError,
    "SoldOut": NoCapacityError,
}
"""What the cloud's codes mean; of any other it is not known what came of the call."""


class SkeletonProvider(Provider):
    """Rents one instance type on spot and on demand."""

    def __init__(self, clock: Clock, options: SkeletonOptions, cloud: Cloud) -> None:
        self.cloud = cloud
        self._clock = clock
        self._options = options
        self._prices = TtlCache[bool, Estimate](PRICE_TTL_S)
        backoff = CapacityBackoff(lambda instance_type: instance_type, lambda r: float(r.nodes))
        self._launcher = IdempotentLauncher(self._launched, _check, self._create, backoff)

    @property
    def names(self) -> frozenset[str]:
        """Only "skeleton"."""
        return frozenset({NAME})

    def offers(self, now: datetime) -> Sequence[Offer]:
        """Return spot and on-demand pools of every zone. The hazard of spot is not published."""
        offers = []
        for zone, region in self.cloud.zones().items():
            for terms in (CapacityType.SPOT, CapacityType.ON_DEMAND):
                spot = terms.is_interruptible
                price = self._prices.get(spot, now, partial(_price, spot, now))
                pool = Pool(NAME, region, zone, INSTANCE_TYPE, terms)
                offers.append(Offer(pool, price, None if spot else ON_DEMAND_HAZARD, None))
        return offers

    def notice_s(self, pool: Pool) -> float:  # noqa: ARG002 - the same for all
        """Return the seconds of notice before an interruption."""
        return NOTICE.total_seconds()

    def launch(self, request: LaunchRequest) -> tuple[Node, ...]:
        """Launch all nodes or none, under the request's key. Raises ProviderError."""
        return self._launcher.launch(request, self._clock.now())

    def nodes(self, owner: str) -> tuple[Node, ...]:
        """Return every node with this owner tag; ended ones for two hours."""
        return self._nodes({"owner": owner})

    def notices(self, owner: str) -> tuple[Interruption, ...]:
        """Return the interruptions that were announced for living nodes."""
        with map_errors(NAME):
            announced = self.cloud.interruptions()
        return tuple(
            Interruption(node.node_id, node.pool, announced[node.node_id] - NOTICE, at)
            for node in self.nodes(owner)
            if (at := announced.get(node.node_id)) is not None
        )

    def terminate(self, node_id: str) -> None:
        """Delete the instance; do nothing where it is missing."""
        try:
            with map_errors(node_id):
                self.cloud.delete(node_id)
        except BadRequestError:
            return

    def quotas(self, now: datetime) -> tuple[Quota, ...]:  # noqa: ARG002
        """Return the account's limit on instances."""
        return (Quota("instances", provider=NAME, max_nodes=MAX_INSTANCES),)

    def close(self) -> None:
        """Nothing is held."""

    def _launched(self, request: LaunchRequest, now: datetime) -> tuple[Node, ...]:  # noqa: ARG002
        return self._nodes({"owner": request.owner, "key": request.key})

    def _create(self, request: LaunchRequest, now: datetime) -> None:  # noqa: ARG002
        pool = request.pool
        tags = {"owner": request.owner, "job": request.job, "key": request.key}
        with map_errors(pool):
            self.cloud.create(
                pool.zone,
                pool.instance_type,
                request.nodes,
                pool.capacity_type.is_interruptible,
                tags,
            )

    def _nodes(self, tags: dict[str, str]) -> tuple[Node, ...]:
        with map_errors(NAME):
            return tuple(self._node(each) for each in self.cloud.instances(tags))

    def _node(self, instance: Instance) -> Node:
        terms = CapacityType.SPOT if instance.spot else CapacityType.ON_DEMAND
        cause = EndCause.INTERRUPTED if instance.interrupted else EndCause.RELEASED
        return Node(
            node_id=instance.instance_id,
            owner=instance.tags["owner"],
            job=instance.tags["job"],
            pool=Pool(NAME, self.cloud.zones()[instance.zone], instance.zone, INSTANCE_TYPE, terms),
            key=instance.tags["key"],
            state=NodeState.RUNNING if instance.ended_at is None else NodeState.ENDED,
            launched_at=instance.created_at,
            usd_per_hour=USD_PER_HOUR[instance.spot],
            ended_at=instance.ended_at,
            end_cause=None if instance.ended_at is None else cause,
        )


@contextmanager
def map_errors(subject: object) -> Iterator[None]:
    """Raise the SDK's errors as costopt's, which name the pool, node or account concerned."""
    try:
        yield
    except CloudError as error:
        kind = ERRORS.get(error.code, ProviderUnavailableError)
        raise kind(f"{subject}: {error}") from error


def _check(request: LaunchRequest, now: datetime) -> LaunchRequest:  # noqa: ARG001
    """Assemble what the cloud is asked for; raise BadRequestError for what it does not sell."""
    if request.pool.provider != NAME:
        raise BadRequestError(f"{request.pool}: not a pool of {NAME}")
    return request


def _price(spot: bool, now: datetime) -> Estimate:
    return Estimate.exact(USD_PER_HOUR[spot], Basis.LISTED, "the cloud's price list", now)
