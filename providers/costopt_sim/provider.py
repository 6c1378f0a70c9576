"""The simulated cloud as a provider of the engine."""

from __future__ import annotations

from datetime import datetime, timedelta

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.fleet import LaunchRequest, Node, flex_start_offer
from costopt.domain.market import UNINTERRUPTIBLE_HAZARD, CapacityType, Interruption, Offer, Pool
from costopt.domain.ports import Clock
from costopt.domain.runtime import Runtime
from costopt.provider.base import Provider
from costopt_sim.fleet import PoolCursor, SimFleet


class SimProvider(Provider):
    """A provider over a recorded or generated market.

    A node runs, and is billed, from the instant of its launch at the recorded price. Where the
    record has a gap, capacity or price are None and nothing can be launched, but what runs there
    keeps running. A launch on flex-start waits until the record has room for it.
    """

    def __init__(self, clock: Clock, fleet: SimFleet, runtime: Runtime) -> None:
        self._runtime = runtime
        self.fleet = fleet
        self._clock = clock
        self._names = frozenset(pool.provider for pool in fleet.market.pools)
        self._offered: tuple[tuple[datetime, int], tuple[Offer, ...]] | None = None
        tick_s = fleet.market.tick_s
        self._tick = None if tick_s is None else timedelta(seconds=tick_s)

    @property
    def names(self) -> frozenset[str]:
        """The providers whose pools the market holds."""
        return self._names

    @property
    def runtime(self) -> Runtime:
        """The runtime that trains on its nodes."""
        return self._runtime

    def uninterruptible_s(self, now: datetime) -> float:
        """Seconds to the next grid point, a full tick at a grid point; 0 without a grid."""
        if self._tick is None:
            return 0.0
        into_tick = (now - self.fleet.market.starts_at) % self._tick
        return (self._tick - into_tick).total_seconds()

    def notice_s(self, pool: Pool) -> float:
        """As the simulator is configured, else what the pool's provider gives."""
        return self.fleet.notice_s(pool)

    def offers(self, now: datetime) -> tuple[Offer, ...]:
        """One offer per pool of the market, as recorded at ``now``."""
        self.fleet.advance(self._clock.now())
        seen = (now, self.fleet.version)
        if self._offered is None or self._offered[0] != seen:
            offers = tuple(
                self._offer(pool, cursor, now) for pool, cursor in self.fleet.cursors.items()
            )
            self._offered = (seen, offers)
        return self._offered[1]

    def launch(self, request: LaunchRequest) -> tuple[Node, ...]:
        """All nodes or none. Raises BadRequestError for a pool that the market does not hold.

        NoCapacityError where too few nodes are free, and in a gap of the record: a node whose
        price is unknown is never launched.
        """
        return self.fleet.launch(request, self._clock.now())

    def nodes(self, owner: str) -> tuple[Node, ...]:
        """Every node with this owner tag; ended ones for two hours."""
        return self.fleet.nodes(owner, self._clock.now())

    def notices(self, owner: str) -> tuple[Interruption, ...]:
        """Interruptions announced and not yet struck."""
        return self.fleet.notices(owner, self._clock.now())

    def terminate(self, node_id: str) -> None:
        """Release a node now; silent where it is missing or has ended."""
        self.fleet.terminate(node_id, self._clock.now())

    def close(self) -> None:
        """Nothing is held."""

    def _offer(self, pool: Pool, cursor: PoolCursor, now: datetime) -> Offer:
        hazard = None if pool.capacity_type.is_interruptible else UNINTERRUPTIBLE_HAZARD
        state = cursor.at(now)
        if state is None:
            return Offer(pool, None, hazard, None)
        price = state.price_usd_per_hour
        estimate = None
        if price is not None:
            estimate = Estimate.exact(price, Basis.MEASURED, self.fleet.market.name, now)
        if pool.capacity_type is CapacityType.FLEX_START:
            return flex_start_offer(
                Offer(pool, estimate, hazard, None), self.fleet.living(pool), now
            )
        return Offer(pool, estimate, hazard, self.fleet.free(pool, now))
