"""Launches that happen once, however often they are requested and whatever answer is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Lock
from typing import Generic, TypeVar

from costopt.domain.errors import (
    BadRequestError,
    ForbiddenError,
    NoCapacityError,
    ProviderError,
    ProviderUnavailableError,
    QuotaExceededError,
    ThrottledError,
)
from costopt.domain.fleet import LaunchRequest, Node
from costopt.domain.market import CapacityType, Pool
from costopt.domain.runtime import Payload

FindNodes = Callable[[LaunchRequest, datetime], tuple[Node, ...]]
"""The nodes of a request's key where all of them are known; () where none are or some may come."""

PriceOf = Callable[[Pool, datetime], float | None]
"""Returns the price of a node of a pool now, in dollars per hour; None if unknown."""

T = TypeVar("T")


def known_price(
    price_of: PriceOf, pool: Pool, now: datetime, hint: str = "try another pool, or later"
) -> float:
    """Return the price of a launch now. Raise NoCapacityError where it is not known."""
    price = price_of(pool, now)
    if price is None:
        message = f"{pool}: its price is not known now, so nothing is launched there"
        raise NoCapacityError(message, hint=hint)
    return price


def payload_of(payloads: Mapping[str, Payload], request: LaunchRequest) -> Payload:
    """Return what nodes of the request's job fetch. Raise BadRequestError if nothing was uploaded
    for them."""
    payload = payloads.get(request.job)
    if payload is None:
        raise BadRequestError(
            f"{request.pool}: nothing was uploaded for nodes of job {request.job!r}",
            hint="start the job with `costopt run`, which uploads its folder",
        )
    return payload


class IdempotentLauncher(Generic[T]):
    """Looks for the nodes of a request's key before it asks for them, and after.

    ``order`` puts together what ``start`` asks the cloud with, and asks for no node. Both raise
    ProviderError; ``start`` ProviderUnavailableError where it is not known what came of it.

    A request is in doubt from an answer that was lost until its nodes are found or the cloud
    refuses it: meanwhile it is asked for again at once, under its key.
    """

    def __init__(
        self,
        find: FindNodes,
        order: Callable[[LaunchRequest, datetime], T],
        start: Callable[[T, datetime], None],
        backoff: CapacityBackoff,
    ) -> None:
        self._find = find
        self._order = order
        self._start = start
        self._backoff = backoff
        self._in_doubt: set[str] = set()

    def launch(self, request: LaunchRequest, now: datetime) -> tuple[Node, ...]:
        """The nodes of this key, launched now or before.

        Raises ProviderError; ProviderUnavailableError as long as it is not known whether the nodes
        exist.
        """
        if request.nodes < 1:
            raise BadRequestError(f"{request.pool}: a launch of {request.nodes} nodes")
        try:
            nodes = self._find(request, now) or self._launched(request, now)
        except ProviderError as error:
            if request.key in self._in_doubt:
                raise ProviderUnavailableError(error.message, hint=error.hint) from error
            raise
        self._in_doubt.discard(request.key)
        return tuple(sorted(nodes, key=lambda node: node.node_id))

    def _launched(self, request: LaunchRequest, now: datetime) -> tuple[Node, ...]:
        self._ask(request, now)
        self._in_doubt.add(request.key)
        nodes = self._find(request, now)
        if not nodes:
            raise ProviderUnavailableError(
                f"{request.pool}: the nodes of launch {request.key} are made and not visible yet"
            )
        return nodes

    def _ask(self, request: LaunchRequest, now: datetime) -> None:
        if request.key not in self._in_doubt:
            self._backoff.check(request, now)
        order = self._order(request, now)
        try:
            self._start(order, now)
        except ProviderUnavailableError:
            self._in_doubt.add(request.key)
            raise
        except ProviderError as error:
            self._backoff.record_failure(request, error, now)
            # Clouds say these before they look at the key: an earlier call may have gone through.
            if not isinstance(error, (ThrottledError, ForbiddenError)):
                self._in_doubt.discard(request.key)
            raise
        self._backoff.record_success(request)


INITIAL_DELAY_S = 30.0
MAX_DELAY_S = 900.0

Place = tuple[str, str, str, CapacityType | None]
"""(region, zone or "", what is short there or "", capacity type)"""


@dataclass(frozen=True, slots=True)
class _Wait:
    """What was refused: requests at least as large wait until then."""

    until: datetime
    times: int
    size: float
    why: str


class CapacityBackoff:
    """Waits that double, from half a minute to a quarter of an hour, until a launch succeeds.

    No capacity concerns a ``kind`` of machine in a zone, a quota one in a region, throttling all
    launches in a region. A smaller request, by ``size``, than the one that was refused may be made
    at any time. ``kind`` is that of an instance type, such as its family.
    """

    def __init__(self, kind: Callable[[str], str], size: Callable[[LaunchRequest], float]) -> None:
        self._kind = kind
        self._size = size
        self._waits: dict[Place, _Wait] = {}
        self._lock = Lock()

    def check(self, request: LaunchRequest, now: datetime) -> None:
        """Raise what was answered before, where it is too early to ask again."""
        with self._lock:
            waits = [(kind, self._waits.get(place)) for kind, place in self._places(request)]
        for kind, wait in waits:
            if wait is None or now >= wait.until or self._size(request) < wait.size:
                continue
            raise kind(
                f"{request.pool}: not asked, for a launch was refused before ({wait.why}); "
                f"asked again from {wait.until:%H:%M:%S} UTC on"
            )

    def record_failure(self, request: LaunchRequest, error: ProviderError, now: datetime) -> None:
        """Take note of a refusal; other errors than the three above are none."""
        for kind, place in self._places(request):
            if isinstance(error, kind):
                with self._lock:
                    self._extend(place, request, error, now)

    def record_success(self, request: LaunchRequest) -> None:
        """Take note of a success: there is capacity again."""
        with self._lock:
            for _, place in self._places(request):
                self._waits.pop(place, None)

    def _extend(
        self, place: Place, request: LaunchRequest, error: ProviderError, now: datetime
    ) -> None:
        before = self._waits.get(place)
        times = 0 if before is None else before.times + 1
        wait_s = min(MAX_DELAY_S, INITIAL_DELAY_S * 2.0**times)
        size = 0.0 if isinstance(error, ThrottledError) else self._size(request)
        if before is not None:
            size = min(size, before.size)
        until = now + timedelta(seconds=wait_s)
        self._waits[place] = _Wait(until, times, size, error.code)

    def _places(self, request: LaunchRequest) -> tuple[tuple[type[ProviderError], Place], ...]:
        pool = request.pool
        kind = self._kind(pool.instance_type)
        return (
            (NoCapacityError, (pool.region, pool.zone, kind, pool.capacity_type)),
            (QuotaExceededError, (pool.region, "", kind, pool.capacity_type)),
            (ThrottledError, (pool.region, "", "", None)),
        )
