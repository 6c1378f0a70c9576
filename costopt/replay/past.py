"""What those that learn would know, had they watched the market before the job began."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from costopt.domain.history import MarketHistory, MarketState
from costopt.domain.job import Job
from costopt.domain.market import Offer, Pool
from costopt.domain.policy import Policy
from costopt.domain.ports import HazardModel, InstanceCatalog, Strategy
from costopt.market.lifetime import LifetimeModel, lifetime_key
from costopt.strategies.fault_isolation import lifetime_model

OBSERVATION_INTERVAL_S = 300.0
"""Between two looks at a record without a grid."""


class PriorObservation:
    """The record of a market in the ``past_s`` before a job's start, looked at tick by tick.

    Seen are spot pools that the policy allows and the job can use, by what a run at the time could
    have seen: where the record has a gap, nothing. ``past_s`` may be infinite: from the first
    recorded instant.
    """

    def __init__(
        self,
        job: Job,
        policy: Policy,
        market: MarketHistory,
        machines: InstanceCatalog,
        past_s: float,
    ) -> None:
        self._job = job
        self._market = market
        recorded_s = (job.start_at - market.starts_at).total_seconds()
        look_s = market.tick_s or OBSERVATION_INTERVAL_S
        self._looks = max(0, int(min(past_s, recorded_s) / look_s + 1e-6))
        self._look = timedelta(seconds=look_s)
        self._nodes = {
            pool: counts
            for pool in market.pools
            if pool.capacity_type.is_interruptible and policy.limits.rejection_reason(pool) is None
            if (counts := _node_counts(job, pool, machines))
        }

    def teach(self, strategy: Strategy, hazards: HazardModel) -> None:
        """Have both learn from it; a strategy that learns nothing stays as it is."""
        lifetimes = lifetime_model(strategy)
        for now, states in self._states():
            hazards.observe([_offer(pool, state) for pool, state in states.items()], now)
            if lifetimes is not None:
                self._tell_lifetimes(lifetimes, states, now)

    def _tell_lifetimes(
        self, lifetimes: LifetimeModel, states: dict[Pool, MarketState], now: datetime
    ) -> None:
        for pool, state in states.items():
            for nodes in self._nodes[pool]:
                up = (state.nodes_available or 0) >= nodes
                region = f"{pool.provider}/{pool.region}"
                lifetimes.observe(lifetime_key(self._job.name, pool, nodes), region, up, now)

    def _states(self) -> Iterator[tuple[datetime, dict[Pool, MarketState]]]:
        """Instants before the start, in order, with the pools that were observed then."""
        for look in range(self._looks, 0, -1):
            now = self._job.start_at - look * self._look
            pools = ((pool, self._market.pools[pool].at(now)) for pool in self._nodes)
            yield (
                now,
                {pool: state for pool, state in pools if state is not None and _is_observed(state)},
            )


def _is_observed(state: MarketState) -> bool:
    return state.nodes_available is not None and state.price_usd_per_hour is not None


def _offer(pool: Pool, state: MarketState) -> Offer:
    return Offer(pool, None, None, state.nodes_available)


def _node_counts(job: Job, pool: Pool, machines: InstanceCatalog) -> tuple[int, ...]:
    """Gang sizes that some phase of the job allows in the pool; none where it cannot be used."""
    machine = machines.instance_type(pool)
    if machine is None or job.resources.rejection_reason(machine) is not None:
        return ()
    return tuple(
        nodes
        for nodes in job.gang_sizes(machine)
        if any(phase.min_nodes <= nodes <= phase.max_nodes for phase in job.phases)
    )
