"""Private prices, discounts, commitments and credits of an account.

A private price replaces the listed one, a discount lowers it. A commitment is paid for whether it
is used or not, so a node that it covers adds nothing to the bill until its quantity is used up.
Commitments cover on-demand usage only, never spot
(https://docs.aws.amazon.com/savingsplans/latest/userguide/what-is-savings-plans.html,
https://docs.cloud.google.com/compute/docs/instances/committed-use-discounts-overview). Credits
change what is paid, not what is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from costopt.domain.account_price import CommitmentKind
from costopt.domain.market import CapacityType, Pool
from costopt.domain.period import ALWAYS, Period


@dataclass(frozen=True, slots=True)
class PoolPattern:
    """Pools of a provider; an empty field matches all. Instance types may hold ``*``.

    A pool of any zone of a region matches every zone of it.
    """

    provider: str
    regions: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    instance_types: tuple[str, ...] = ()
    capacity_types: tuple[CapacityType, ...] = (CapacityType.ON_DEMAND,)

    def matches(self, pool: Pool) -> bool:
        """Return whether it names the pool."""
        zone = pool.zone
        return (
            pool.provider == self.provider
            and (not self.regions or pool.region in self.regions)
            and (not self.zones or zone in self.zones or zone.endswith("*"))
            and (not self.capacity_types or pool.capacity_type in self.capacity_types)
            and self.matches_type(pool.instance_type)
        )

    def matches_type(self, instance_type: str) -> bool:
        """Return whether it names the instance type."""
        patterns = self.instance_types
        return not patterns or any(fnmatchcase(instance_type, each) for each in patterns)


@dataclass(frozen=True, slots=True)
class PrivatePrice:
    """A node-hour of these pools costs ``usd_per_hour``, whatever the list says."""

    name: str
    pools: PoolPattern
    usd_per_hour: float
    period: Period = ALWAYS


@dataclass(frozen=True, slots=True)
class Discount:
    """These pools cost ``percent`` (0–100) less than listed."""

    name: str
    pools: PoolPattern
    percent: float
    period: Period = ALWAYS


@dataclass(frozen=True, slots=True)
class Commitment:
    """What is paid for each hour, used or not: ``usd_per_hour``, None where it is unknown.

    Of dollars, a node uses its covered rate: ``rates`` are dollars per node-hour by (region,
    instance type), region "" for all others, and what has none is not covered. Of ``nodes``, it
    uses one. A reservation holds capacity as well; its nodes may add ``marginal_usd_per_hour`` to
    the bill.
    """

    name: str
    kind: CommitmentKind
    pools: PoolPattern
    usd_per_hour: float | None = None
    nodes: int | None = None
    rates: Mapping[tuple[str, str], float] = field(default_factory=dict, hash=False)
    marginal_usd_per_hour: float = 0.0
    period: Period = ALWAYS

    @property
    def quantity(self) -> float:
        """Return how much there is in an hour: dollars or nodes."""
        most = self.usd_per_hour if self.kind.is_spend else self.nodes
        assert most is not None
        return float(most)

    def load(self, pool: Pool) -> float:
        """Return how much of the quantity a node uses; 0 where the pool is not covered.

        A node whose rate exceeds the whole commitment uses all of it, and is covered in part.
        """
        if not self.kind.is_spend:
            return 1.0
        return min(self._rate(pool), self.quantity)

    def covered_share(self, pool: Pool) -> float:
        """Return the share of a node-hour that is covered; 0 where the pool is not."""
        if not self.kind.is_spend:
            return 1.0
        rate = self._rate(pool)
        return min(1.0, self.quantity / rate) if rate > 0 else 0.0

    def share_usd_per_hour(self, pool: Pool) -> float | None:
        """Return the dollars of the commitment that a node uses per hour; None where unknown."""
        if self.kind.is_spend:
            return self.load(pool)
        return None if self.usd_per_hour is None else self.usd_per_hour / self.quantity

    def _rate(self, pool: Pool) -> float:
        of_region = self.rates.get((pool.region, pool.instance_type))
        return self.rates.get(("", pool.instance_type), 0.0) if of_region is None else of_region


@dataclass(frozen=True, slots=True)
class Credit:
    """``usd`` that pay for what ``provider`` charges within the period, until they are used up."""

    name: str
    provider: str
    usd: float
    period: Period = ALWAYS
