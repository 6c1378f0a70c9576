"""How long capacity lasts and how long it stays away, by the age of the present period.

A pool alternates between periods with capacity and without. The rate at which the present one ends
falls steeply with its age, on every recorded market and in both directions, from about 2 per hour
when it is new to 0.04 after 16 hours: what has just come back is likely to go soon, what has lasted
for a day will last. So the rate is piecewise constant over classes of age a, and learned per pool:

    λ_a = (κ + n_a) / (κ / λ⁰_a + h_a)

the mean of a Gamma–Poisson posterior, n_a endings having been seen in h_a hours spent at that age.
The prior λ⁰_a of a pool is, by the same formula, what was seen in the other pools of its region;
the region's prior is fitted on recorded markets (data/lifetime.toml). What was seen fades with a
memory of ``memory_h`` hours, so that a market that has changed is believed.

A pool that comes and goes more often than others does so at every age, and a dozen periods show it
where a class of age alone has seen one or two. So pools may go, and come back, so many times as
fast as the prior as one of ``LONE_PACES`` or ``JOINT_PACES`` says, and the likelihood of what was
seen tells which (``LifetimeModel.scenarios``):

    P(s | n, h) ∝ P(s) · Π_a β_a^κ / (β_a + h_a)^(κ + n_a),  β_a = κ / (s · λ⁰_a)

the negative binomial likelihoods of the classes of all pools, with Gamma priors at the pace s.
"""

from __future__ import annotations

import math
import tomllib
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from importlib.resources import files
from itertools import chain
from typing import Any

from costopt.domain.market import Pool

MAX_OBSERVATION_GAP_H = 1.0
"""Between observations further apart than this a period may have ended and begun unseen."""

UNKNOWN_AGE_H = 1.0
"""Assumed age, at the first observation, of a period with unknown beginning. Between 0.3 h and 4 h
the costs on the recorded markets change by less than 0.1 %."""

PRIOR_ENDINGS = 10.0
"""κ, the endings that the prior weighs as much as, per class of age. Between 4 and 20 the costs on
the recorded markets change by less than 0.1 %."""

Paces = tuple[tuple[float, float, float], ...]
"""How many times as fast as the prior says capacity goes, and comes back, each with the probability
beforehand."""

LONE_PACES: Paces = ((1.0, 1.0, 0.4), (2.0, 1.4, 0.6))
"""Those of one pool: recorded ones that go twice as often come back 1.1 to 1.4 times as often. Half
as fast is left out: to expect a pool to last costs more, where it does not, than it else saves."""

JOINT_PACES: Paces = ((1.0, 1.0, 0.6), (2.0, 1.0, 0.4))
"""Those that several pools have in common. Until it has shown which of them it is, what has just
come back is trusted less: on scarce markets on-demand capacity is not left for it in vain."""

PRIOR_SHARE = 0.63
"""Mean share of time with capacity of the five V100 zones of the public 2023 records."""

PRIOR_SHARE_H = 24.0
"""Hours of watching that the prior share weighs as much as."""

Counts = tuple[list[float], list[float]]
"""Per class of age, of periods without capacity (0) and with it (1)."""


@dataclass(frozen=True, slots=True)
class AgeRates:
    """Endings per hour by class of age. ``from_h`` are the ages at which the classes begin."""

    from_h: tuple[float, ...]
    up_per_hour: tuple[float, ...]
    down_per_hour: tuple[float, ...]

    def of(self, up: bool) -> tuple[float, ...]:
        """Those of periods with capacity, or without."""
        return self.up_per_hour if up else self.down_per_hour

    def class_at(self, age_h: float) -> int:
        """The class of a period of this age."""
        return bisect_right(self.from_h, age_h + 1e-9) - 1

    def differs(self, other: AgeRates, factor: float) -> bool:
        """Whether some rate is ``factor`` times the other's, or more, either way."""
        pairs = zip(
            self.up_per_hour + self.down_per_hour,
            other.up_per_hour + other.down_per_hour,
            strict=True,
        )
        return any(mine >= factor * its or its >= factor * mine for mine, its in pairs)


@cache
def prior_rates() -> AgeRates:
    """Return the shipped prior; data/lifetime.toml states its source."""
    text = files("costopt.market").joinpath("data/lifetime.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    return AgeRates(
        tuple(table["from_h"]), tuple(table["up_per_hour"]), tuple(table["down_per_hour"])
    )


@dataclass(slots=True)
class _LifetimeRecord:
    """What was seen of one pool."""

    region: str
    endings: Counts
    hours: Counts
    up: bool
    seen_at: datetime
    age_h: float = UNKNOWN_AGE_H
    up_h: float = 0.0
    watched_h: float = 0.0

    def is_old(self, now: datetime) -> bool:
        """Whether the period may have ended since, unseen."""
        return (now - self.seen_at).total_seconds() / 3600 > MAX_OBSERVATION_GAP_H

    def copied(self, now: datetime) -> _LifetimeRecord:
        """A copy for ``now``."""
        (down, up), (down_h, up_h) = self.endings, self.hours
        age_h = UNKNOWN_AGE_H if self.is_old(now) else self.age_h
        counts, hours = (list(down), list(up)), (list(down_h), list(up_h))
        return replace(self, endings=counts, hours=hours, age_h=age_h)


@dataclass(slots=True)
class LifetimeModel:
    """Learned lifetimes by key; a key is what can have capacity, such as a gang in a pool.

    Raises nothing: a key that was never observed has the prior's rates.
    """

    prior: AgeRates = field(default_factory=prior_rates)
    memory_h: float = 72.0
    _records: dict[Hashable, _LifetimeRecord] = field(default_factory=dict)
    _watched: dict[str, dict[Hashable, dict[int, _LifetimeRecord]]] = field(default_factory=dict)
    """By region, pool and nodes, the record that is watched and has been for longest."""

    def observe(self, key: Hashable, region: str, up: bool, now: datetime) -> None:
        """Record whether there is capacity; a second observation at the same instant is ignored."""
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = self._begin(region, up, now)
            self._compare(key, record)
            return
        apart_h = (now - record.seen_at).total_seconds() / 3600
        if apart_h <= 0:
            return
        if apart_h > MAX_OBSERVATION_GAP_H:
            record.age_h = UNKNOWN_AGE_H
        else:
            self._learn(record, up, apart_h)
            record.age_h = record.age_h + apart_h if record.up == up else 0.0
        record.up, record.seen_at = up, now
        self._compare(key, record)

    def forget(self, now: datetime) -> None:
        """Drop the records that were not observed for as long as the memory lasts, except those
        that serve as the prior of others."""
        since = now - timedelta(hours=max(self.memory_h, MAX_OBSERVATION_GAP_H))
        pools = (pool for pools in self._watched.values() for pool in pools.values())
        watched = {id(record) for sizes in pools for record in sizes.values()}
        self._records = {
            key: record
            for key, record in self._records.items()
            if record.seen_at >= since or id(record) in watched
        }

    def knows(self, key: Hashable) -> bool:
        """Whether it was ever observed."""
        return key in self._records

    def excerpt(self, keys: Iterable[tuple[Hashable, ...]], now: datetime) -> LifetimeModel:
        """Return a copy that knows the pools of these keys as any job saw them: by the gang that is
        nearest in size. What was not observed for a while is of unknown age.

        The keys are tuples that end in a pool and a number of nodes.
        """
        copied = LifetimeModel(self.prior, self.memory_h)
        wanted = list(keys)
        for region, pools in self._watched.items():
            known = [key for key in wanted if key[-2] in pools]
            if known:
                copied._watched[region] = {
                    pool: {nodes: record.copied(now) for nodes, record in sizes.items()}
                    for pool, sizes in pools.items()
                }
            for key in known:
                sizes, nodes = copied._watched[region][key[-2]], _pool_and_nodes(key)[1]
                copied._records[key] = sizes[min(sizes, key=lambda count: abs(count - nodes))]
        return copied

    def is_up(self, key: Hashable, now: datetime) -> bool | None:
        """Return whether there was capacity when it was last observed; None if that is not known or
        long ago."""
        record = self._records.get(key)
        return None if record is None or record.is_old(now) else record.up

    def age_h(self, key: Hashable) -> float:
        """How long the present period has lasted, as far as is known."""
        record = self._records.get(key)
        return UNKNOWN_AGE_H if record is None else record.age_h

    def availability(self, key: Hashable) -> float:
        """The share of time with capacity."""
        record = self._records.get(key)
        if record is None:
            return PRIOR_SHARE
        return (PRIOR_SHARE * PRIOR_SHARE_H + record.up_h) / (PRIOR_SHARE_H + record.watched_h)

    def rates(self, key: Hashable) -> AgeRates:
        """Posterior means of the pool, whose prior are the other pools of its region.

        Of keys that are tuples ending in a pool and a number of nodes, each pool counts once, with
        the gang nearest in size, of any job: jobs that observe the same pool get the same rates.
        """
        record = self._records.get(key)
        return self.prior if record is None else _posterior(self._shared(key, record), (record,))

    def scenarios(self, keys: Sequence[Hashable]) -> Iterator[tuple[float, tuple[AgeRates, ...]]]:
        """What the rates of these may be, each with its probability: at each of their paces.

        The evidence of keys of the same pool counts once.
        """
        records = [self._records.get(key) for key in keys]
        first = {_pool_and_nodes(key)[0]: place for place, key in reversed([*enumerate(keys)])}
        paces, prior = LONE_PACES if len(first) == 1 else JOINT_PACES, self.prior
        around = [self._elsewhere(k, r) if r else () for k, r in zip(keys, records, strict=True)]
        seen = [
            (self._seen((record,) if record else ()), self._seen(others))
            for record, others in zip(records, around, strict=True)
        ]
        likely, rates = [], []
        for leaves, comes, probability in paces:
            downs = [_paced(prior.down_per_hour, comes, own[0], rest[0]) for own, rest in seen]
            ups = [_paced(prior.up_per_hour, leaves, own[1], rest[1]) for own, rest in seen]
            pairs = zip(ups, downs, strict=True)
            rates.append(tuple(AgeRates(prior.from_h, up, down) for (up, _), (down, _) in pairs))
            counted = sum(downs[place][1] + ups[place][1] for place in first.values())
            likely.append(math.log(probability) + counted)
        weights = [math.exp(each - max(likely)) for each in likely]
        for weight, each in zip(weights, rates, strict=True):
            yield weight / sum(weights), each

    def to_json(self) -> list[list[Any]]:
        """What was seen, as data that JSON can hold; of keys that are tuples of words and numbers.

        The prior and the memory are not among it.
        """
        return [
            [key, {**asdict(record), "seen_at": record.seen_at.isoformat()}]
            for key, record in self._records.items()
        ]

    def from_json(self, plain: Iterable[Any]) -> None:
        """Load the observations that ``to_json`` returned.

        Raises ValueError, KeyError or TypeError for other data, and then loads nothing.
        """
        recalled = {tuple(key): self._recalled(seen) for key, seen in plain}
        self._records.update(recalled)
        for key, record in recalled.items():
            self._compare(key, record)

    def _recalled(self, seen: dict[str, Any]) -> _LifetimeRecord:
        endings, hours = ((down, up) for down, up in (seen["endings"], seen["hours"]))
        of_age = (*endings, *hours)
        if any(len(counts) != len(self.prior.from_h) for counts in of_age):
            raise ValueError("other classes of age")
        seen_at = datetime.fromisoformat(seen["seen_at"])
        record = _LifetimeRecord(**{**seen, "endings": endings, "hours": hours, "seen_at": seen_at})
        figures = [record.age_h, record.up_h, record.watched_h, *chain.from_iterable(of_age)]
        if seen_at.tzinfo is None or not all(math.isfinite(f) and f >= 0 for f in figures):
            raise ValueError("no such counts")
        return record

    def _shared(self, key: Hashable, record: _LifetimeRecord) -> AgeRates:
        """The prior of a pool."""
        return _posterior(self.prior, self._elsewhere(key, record))

    def _elsewhere(self, key: Hashable, record: _LifetimeRecord) -> Iterable[_LifetimeRecord]:
        """One record of each pool of the region, but not this one."""
        nodes = _pool_and_nodes(key)[1]
        for sizes in self._watched[record.region].values():
            nearest = sizes[min(sizes, key=lambda count: abs(count - nodes))]
            if nearest is not record:
                yield nearest

    def _seen(self, records: Iterable[_LifetimeRecord]) -> tuple[Counts, Counts]:
        """Endings and hours in all of them, by class of age: down, then up."""
        counts = [(each.endings, each.hours) for each in records]
        counts = counts or [(self._nothing(), self._nothing())]
        if len(counts) > 1:
            counts = [(_total(e for e, _ in counts), _total(h for _, h in counts))]
        endings, hours = counts[0]
        return (endings[0], hours[0]), (endings[1], hours[1])

    def _compare(self, key: Hashable, record: _LifetimeRecord) -> None:
        """Whether this is now the one that is watched and has been for longest."""
        pool, nodes = _pool_and_nodes(key)
        sizes = self._watched.setdefault(record.region, {}).setdefault(pool, {})
        known = sizes.get(nodes, record)
        unseen_h = (record.seen_at - known.seen_at).total_seconds() / 3600
        if unseen_h > MAX_OBSERVATION_GAP_H or record.watched_h >= known.watched_h:
            sizes[nodes] = record

    def _begin(self, region: str, up: bool, now: datetime) -> _LifetimeRecord:
        return _LifetimeRecord(region, self._nothing(), self._nothing(), up, now)

    def _nothing(self) -> Counts:
        classes = len(self.prior.from_h)
        return [0.0] * classes, [0.0] * classes

    def _learn(self, record: _LifetimeRecord, up: bool, apart_h: float) -> None:
        kept = math.exp(-apart_h / self.memory_h) if self.memory_h > 0 else 0.0
        record.up_h = record.up_h * kept + apart_h * record.up
        record.watched_h = record.watched_h * kept + apart_h
        for counts in (*record.endings, *record.hours):
            counts[:] = [count * kept for count in counts]
        of_age = self.prior.class_at(record.age_h)
        record.hours[record.up][of_age] += apart_h
        record.endings[record.up][of_age] += up != record.up


def lifetime_key(job: str, pool: Pool | str, nodes: int) -> tuple[str, str, int]:
    """The key under which capacity is learned: other jobs' nodes take from the same pool."""
    return job, str(pool), nodes


def _pool_and_nodes(key: Hashable) -> tuple[Hashable, int]:
    if isinstance(key, tuple) and len(key) > 1 and isinstance(key[-1], int):
        return key[-2], key[-1]
    return key, 0


def _total(counts: Iterable[Counts]) -> Counts:
    down, up = (
        [sum(of_age) for of_age in zip(*each, strict=True)] for each in zip(*counts, strict=True)
    )
    return down, up


def _paced(
    prior_per_hour: tuple[float, ...], pace: float, own: Counts, elsewhere: Counts
) -> tuple[tuple[float, ...], float]:
    """The rates after what was seen of one at this pace, and the logarithm of its likelihood."""
    rates, likely = [], 0.0
    counts = zip(prior_per_hour, *own, *elsewhere, strict=True)
    for prior, ended, watched_h, others_ended, others_watched_h in counts:
        waited_h = PRIOR_ENDINGS / (prior * pace)
        shared_h = (waited_h + others_watched_h) * PRIOR_ENDINGS / (PRIOR_ENDINGS + others_ended)
        rates.append((PRIOR_ENDINGS + ended) / (shared_h + watched_h))
        if watched_h > 0:
            total_h = waited_h + watched_h
            likely += PRIOR_ENDINGS * math.log(waited_h / total_h) - ended * math.log(total_h)
    return tuple(rates), likely


def _posterior(prior: AgeRates, records: Iterable[_LifetimeRecord]) -> AgeRates:
    """The prior's rates after what was seen in ``records``."""
    seen = tuple(records)
    if not seen:
        return prior

    def of(up: bool) -> tuple[float, ...]:
        ended = zip(*(record.endings[up] for record in seen), strict=True)
        watched = zip(*(record.hours[up] for record in seen), strict=True)
        return tuple(
            (PRIOR_ENDINGS + sum(endings)) / (PRIOR_ENDINGS / rate + sum(hours))
            for rate, endings, hours in zip(prior.of(up), ended, watched, strict=True)
        )

    return AgeRates(prior.from_h, of(True), of(False))
