"""The Gamma–Poisson hazard model: interruptions and availability learned by observing the market.

Interruptions of a pool are counted per node-hour as a Poisson process whose rate has a gamma
distribution: after n interruptions in h hours up, Gamma(k, r) becomes Gamma(k + n, r + h), with
mean (k + n) / (r + h) interruptions per hour. Of the hours observed, those with capacity are
counted against a prior that weighs as much as a few of them. The quantiles of the gamma
distribution are computed here, without a numerical library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.market import UNINTERRUPTIBLE_HAZARD, Offer, Pool

JEFFREYS_SHAPE = 0.5
"""Shape of the prior that claims nothing about a Poisson rate (Jeffreys 1946); its rate is 0."""

MAX_OBSERVATION_GAP_S = 3600.0
"""Between observations further apart than this a pool may have gone and come back unseen."""

PRIOR_SHARE = 0.63
"""Mean share of time with capacity of the five V100 zones of the public 2023 spot availability
records (skypilot-org/spot-traces): 0.17, 0.45, 0.76, 0.88 and 0.89."""

PRIOR_SHARE_H = 4.0
"""Hours of watching that the prior share weighs as much as: about the mean stretch of capacity in
those records, so that one whole stretch seen counts as much as the prior."""

Priors = Mapping[Pool, Estimate] | Callable[[Pool], Estimate | None]


@dataclass(slots=True)
class _HazardRecord:
    """What is known of one pool: the prior, what was counted, and the last look at it."""

    shape: float
    rate_h: float
    source: str
    interruptions: int = 0
    up_h: float = 0.0
    down_h: float = 0.0
    was_up: bool | None = None
    seen_at: datetime | None = None
    struck_at: datetime | None = None
    estimate: Estimate | None = None
    """The posterior, until the next observation."""

    def posterior(self) -> Estimate | None:
        """The present estimate, cached until the next observation."""
        if self.estimate is None:
            self.estimate = posterior(
                self.shape, self.rate_h, self.interruptions, self.up_h, self.source, self.seen_at
            )
        return self.estimate


class LearnedHazard:
    """Implements the HazardModel port; one Gamma–Poisson posterior per interruptible pool.

    An interruption is a pool that had capacity at one observation and none at the next, or the loss
    of one of our nodes; several nodes lost at one instant are one interruption. A prior without
    an interval is a known figure and is not learned over, and neither is its pool's availability.
    """

    def __init__(self, priors: Priors) -> None:
        self._prior = priors if callable(priors) else priors.get
        self._published: dict[Pool, Estimate] = {}
        self._records: dict[Pool, _HazardRecord | None] = {}

    def observe(
        self, offers: Sequence[Offer], now: datetime, running: Collection[Pool] = ()
    ) -> None:
        """Record which pools have capacity; those in ``running``, with a node of ours, have it.

        A hazard that an offer states as a prior replaces the pool's prior.
        """
        for offer in offers:
            pool = offer.pool
            if not pool.capacity_type.is_interruptible:
                continue
            record = self._record_of(pool, offer.hazard_per_hour)
            if record is not None:
                _look(record, _is_up(offer, running), now)

    def record_interruption(self, pool: Pool, at: datetime) -> None:
        """Record that one of our nodes was interrupted at ``at``."""
        record = self._records[pool] if pool in self._records else self._begin(pool)
        if record is None or record.struck_at == at:
            return
        record.struck_at = at
        record.interruptions += 1
        record.estimate = None

    def hazard_per_hour(self, pool: Pool) -> Estimate | None:
        """Posterior mean and 90 % interval; None where neither prior nor observation exists."""
        if not pool.capacity_type.is_interruptible:
            return UNINTERRUPTIBLE_HAZARD
        record = self._records[pool] if pool in self._records else self._begin(pool)
        if record is None:
            return self._prior_of(pool)
        return record.posterior()

    def availability(self, pool: Pool) -> Estimate | None:
        """The share of time with capacity, as seen so far; None for capacity that always is."""
        if not pool.capacity_type.is_interruptible:
            return None
        record = self._records.get(pool)
        return _share(record.up_h, record.down_h, record.seen_at) if record else _share(0, 0, None)

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Return the observations by pool, without the priors, as data that JSON can hold."""
        return {
            str(pool): {
                "interruptions": record.interruptions,
                "up_h": record.up_h,
                "down_h": record.down_h,
                "was_up": record.was_up,
                "seen_at": _iso(record.seen_at),
                "struck_at": _iso(record.struck_at),
            }
            for pool, record in self._records.items()
            if record is not None
        }

    def from_json(self, plain: Mapping[str, Mapping[str, Any]]) -> None:
        """Load the observations that ``to_json`` returned.

        Raises ValueError, KeyError or TypeError for other data, and then loads nothing. Pools
        whose hazard is known need no counts.
        """
        recalled = [(Pool.parse(pool), _counted(seen)) for pool, seen in plain.items()]
        for pool, seen in recalled:
            begun = self._begin(pool)
            if begun is not None:
                self._records[pool] = replace(begun, **seen)

    def _record_of(self, pool: Pool, published: Estimate | None) -> _HazardRecord | None:
        if (
            published is None
            or published.basis is not Basis.PRIOR
            or published == self._published.get(pool)
        ):
            return self._records[pool] if pool in self._records else self._begin(pool)
        self._published[pool] = published
        before = self._records.get(pool)
        record = self._begin(pool)
        if before is None or record is None:
            return record
        before.shape, before.rate_h, before.source = record.shape, record.rate_h, record.source
        before.estimate = None
        self._records[pool] = before
        return before

    def _begin(self, pool: Pool) -> _HazardRecord | None:
        """A new record, or None where the prior is a known figure."""
        prior = self._prior_of(pool)
        record: _HazardRecord | None
        if prior is None:
            record = _HazardRecord(JEFFREYS_SHAPE, 0.0, "no prior")
        elif prior.low == prior.high:
            record = None
        else:
            shape, rate_h = gamma_prior(prior)
            record = _HazardRecord(shape, rate_h, prior.source)
        self._records[pool] = record
        return record

    def _prior_of(self, pool: Pool) -> Estimate | None:
        return self._published.get(pool) or self._prior(pool)


def gamma_prior(prior: Estimate) -> tuple[float, float]:
    """Shape and rate (hours) with the prior's mean, its 90 % interval read as ± 1.645 σ."""
    sigma = (prior.high - prior.low) / (2 * Z_95)
    mean = max(prior.value, 1e-9)
    shape = (mean / sigma) ** 2
    return shape, shape / mean


def posterior(
    shape: float,
    rate_h: float,
    interruptions: int,
    up_h: float,
    source: str,
    observed_at: datetime | None,
) -> Estimate | None:
    """Interruptions per hour after ``interruptions`` in ``up_h``; None where nothing is known."""
    total_h = rate_h + up_h
    if total_h <= 0:
        return None
    low, high = gamma_interval(shape + interruptions)
    mean = (shape + interruptions) / total_h
    seen = up_h > 0 or interruptions > 0
    prior = f"a prior that weighs as much as {rate_h:,.0f} h: {source}" if rate_h > 0 else source
    return Estimate(
        value=mean,
        low=min(low / total_h, mean),
        high=max(high / total_h, mean),
        basis=Basis.MEASURED if seen else Basis.PRIOR,
        source=f"{interruptions} interruptions in {up_h:.1f} h, {prior}" if seen else source,
        observed_at=observed_at,
    )


def _share(up_h: float, down_h: float, observed_at: datetime | None) -> Estimate:
    """The mean of a beta distribution, ± 1.645 σ, a whole stretch being one observation of it."""
    seen_h = up_h + down_h
    total_h = PRIOR_SHARE_H + seen_h
    mean = (PRIOR_SHARE * PRIOR_SHARE_H + up_h) / total_h
    half = Z_95 * math.sqrt(mean * (1 - mean) / (total_h / PRIOR_SHARE_H + 1))
    return Estimate(
        value=mean,
        low=max(0.0, mean - half),
        high=min(1.0, mean + half),
        basis=Basis.MEASURED if seen_h > 0 else Basis.PRIOR,
        source=f"{up_h:.1f} of {seen_h:.1f} h seen, public spot availability records before",
        observed_at=observed_at,
    )


def _iso(when: datetime | None) -> str | None:
    return None if when is None else when.isoformat()


def _counted(seen: Mapping[str, Any]) -> dict[str, Any]:
    """A record's counts out of plain data. Raises ValueError, KeyError or TypeError."""
    at = {name: seen[name] and datetime.fromisoformat(seen[name])
          for name in ("seen_at", "struck_at")}  # fmt: skip
    figures = {name: seen[name] for name in ("interruptions", "up_h", "down_h")}
    if not all(math.isfinite(figure) and figure >= 0 for figure in figures.values()):
        raise ValueError("no such counts")
    return {**figures, **at, "was_up": seen["was_up"]}


def _is_up(offer: Offer, running: Collection[Pool]) -> bool | None:
    if offer.pool in running:
        return True
    return None if offer.nodes_available is None else offer.nodes_available > 0


def _look(record: _HazardRecord, up: bool | None, now: datetime) -> None:
    before = record.seen_at
    if before is not None and now <= before:
        return
    apart_s = 0.0 if before is None else (now - before).total_seconds()
    if before is not None and up is not None and apart_s <= MAX_OBSERVATION_GAP_S:
        if record.was_up:
            record.up_h += apart_s / 3600
            counted = record.struck_at is not None and before < record.struck_at <= now
            record.interruptions += int(not up and not counted)
        elif record.was_up is False:
            record.down_h += apart_s / 3600
    record.was_up, record.seen_at, record.estimate = up, now, None


Z_95 = 1.6448536269514722
"""The 95 % quantile of the standard normal distribution."""

LARGE_SHAPE = 100.0


@lru_cache(maxsize=4096)
def gamma_interval(shape: float) -> tuple[float, float]:
    """The 5 % and 95 % quantiles of the gamma distribution with this shape and rate 1.

    From shape 100 on by Wilson and Hilferty (PNAS 17, 1931), k (1 − 1/(9k) + z/(3 √k))³, which is
    then within 0.01 % of the truth. Below, where that fails near zero, by bisection on the
    regularized incomplete gamma function (Abramowitz and Stegun, 6.5.29).
    """
    if shape >= LARGE_SHAPE:
        return _wilson_hilferty(shape, -Z_95), _wilson_hilferty(shape, Z_95)
    return _bisect(shape, 0.05), _bisect(shape, 0.95)


def gamma_probability(shape: float, x: float) -> float:
    """P(X ≤ x) for rate 1: x^k e^−x / Γ(k+1) · Σ xⁿ / ((k+1) … (k+n))."""
    if x <= 0:
        return 0.0
    term = total = 1.0
    n = 0
    while term > 1e-16 * total:
        n += 1
        term *= x / (shape + n)
        total += term
    return min(total * math.exp(shape * math.log(x) - x - math.lgamma(shape + 1)), 1.0)


def _wilson_hilferty(shape: float, z: float) -> float:
    return shape * (1 - 1 / (9 * shape) + z / (3 * math.sqrt(shape))) ** 3


def _bisect(shape: float, probability: float) -> float:
    low, high = 0.0, shape + 10 * math.sqrt(shape) + 10
    for _ in range(80):
        middle = (low + high) / 2
        if gamma_probability(shape, middle) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2
