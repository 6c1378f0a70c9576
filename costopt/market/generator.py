"""Synthetic markets: semi-Markov availability, shortages shared by regions, prices in steps.

A pool is up or down. A state of age a ends within the next tick Δ with probability
1 − exp(−m · (H(a + Δ) − H(a))), where H(a) = (a / λ)^k is the cumulative hazard of a Weibull
distribution and m the region's stress: exp(s z) for going down, exp(−s z) for coming back. The
stress z is an Ornstein–Uhlenbeck process. The parameters and their sources are in
data/generator.toml. ``fill_capacity`` models the capacity that a price history leaves unknown, so
that it can be replayed.
"""

from __future__ import annotations

import math
import tomllib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from itertools import islice
from random import Random

from costopt.domain.errors import MarketError
from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.market import CapacityType, Pool
from costopt.market.history_file import UNLIMITED_NODES, compress_samples

END_OF_TIME = datetime.max.replace(tzinfo=UTC)
DEFAULT_START_AT = datetime(2024, 1, 1, tzinfo=UTC)
DEFAULT_TICK_S = 300.0


def generate_market(
    pools_usd_per_hour: Mapping[Pool, float],
    *,
    hours: float,
    seed: int,
    profile: str = "typical",
    start_at: datetime = DEFAULT_START_AT,
    tick_s: float = DEFAULT_TICK_S,
    parameters: GeneratorParameters | None = None,
) -> MarketHistory:
    """A market of these pools around these prices; the same arguments give the same market.

    A pool's course depends on the seed, its name and its region only, so that adding a pool
    leaves the others as they were. Pools that cannot be interrupted keep their price and are
    never short. Raises MarketError.
    """
    _check(pools_usd_per_hour, hours, tick_s, start_at)
    settings = parameters or generator_parameters()
    ticks = max(round(hours * 3600 / tick_s), 1)
    scene = _Scene(settings, settings.profile(profile), seed, ticks, tick_s / 3600)
    instants = [start_at + index * timedelta(seconds=tick_s) for index in range(ticks + 1)]
    pools = {
        pool: PoolHistory(pool, _states(scene, pool, price, instants), instants[-1])
        for pool, price in pools_usd_per_hour.items()
    }
    return MarketHistory(
        name=f"{profile}-{seed}",
        pools=pools,
        tick_s=tick_s,
        source=f"generated: profile {profile}, seed {seed}",
    )


class _Scene:
    """What all pools of one market have in common."""

    def __init__(
        self,
        parameters: GeneratorParameters,
        profile: MarketProfile,
        seed: int,
        ticks: int,
        tick_h: float,
    ) -> None:
        self.parameters = parameters
        self.profile = profile
        self.ticks = ticks
        self.tick_h = tick_h
        self._seed = seed
        self._stress: dict[str, list[float]] = {}
        self._drift: dict[str, list[float]] = {}

    def random(self, purpose: str) -> Random:
        """A stream of its own for each purpose, the same in every run and Python version."""
        return Random(f"{self._seed}/{purpose}")  # noqa: S311

    def stress(self, region: str) -> list[float]:
        """The region's shortage per tick: mean 0, variance 1."""
        if region not in self._stress:
            share = self.parameters.stress.shared_by_all_regions
            own, world = self._ornstein_uhlenbeck(region), self._ornstein_uhlenbeck("world")
            self._stress[region] = [
                math.sqrt(share) * w + math.sqrt(1 - share) * o
                for w, o in zip(world, own, strict=True)
            ]
        return self._stress[region]

    def drift(self, place: str) -> list[float]:
        """Logarithm of a price per tick, relative to its mean: steps that are slowly forgotten."""
        if place not in self._drift:
            self._drift[place] = list(islice(self._steps(place), self.ticks))
        return self._drift[place]

    def _ornstein_uhlenbeck(self, name: str) -> list[float]:
        random = self.random(f"stress/{name}")
        keep = math.exp(-self.tick_h / self.parameters.stress.memory_hours)
        noise = math.sqrt(1 - keep**2)
        value, values = random.gauss(0, 1), []
        for _ in range(self.ticks):
            values.append(value)
            value = keep * value + noise * random.gauss(0, 1)
        return values

    def _steps(self, place: str) -> Iterator[float]:
        price, random = self.parameters.price, self.random(f"price/{place}")
        sigma = price.step_sigma * math.sqrt(price.changes_per_day * price.memory_days / 2)
        change = 1 - math.exp(-price.changes_per_day * self.tick_h / 24)
        value, since_days = random.gauss(0, sigma), 0.0
        while True:
            yield value
            since_days += self.tick_h / 24
            if random.random() < change:
                kept = value * math.exp(-since_days / price.memory_days)
                value, since_days = kept + random.gauss(0, price.step_sigma), 0.0


class _Weibull:
    """Cumulative hazard that a state gains in each tick of its age."""

    def __init__(self, shape: float, mean_h: float, tick_h: float) -> None:
        self._shape = shape
        self._scale_h = mean_h / math.gamma(1 + 1 / shape)
        self._tick_h = tick_h
        self._gains: list[float] = []

    def gain(self, age_ticks: int) -> float:
        """H(a + Δ) − H(a) at this age."""
        while age_ticks >= len(self._gains):
            start_h = len(self._gains) * self._tick_h
            self._gains.append(self._cumulative(start_h + self._tick_h) - self._cumulative(start_h))
        return self._gains[age_ticks]

    def _cumulative(self, age_h: float) -> float:
        return float((age_h / self._scale_h) ** self._shape)


def _states(
    scene: _Scene, pool: Pool, usd_per_hour: float, instants: Sequence[datetime]
) -> tuple[MarketState, ...]:
    if not pool.capacity_type.is_interruptible:
        return (MarketState(instants[0], UNLIMITED_NODES, usd_per_hour),)
    region = f"{pool.provider}/{pool.region}"
    shared = scene.parameters.price.shared_by_region
    prices = zip(scene.drift(region), scene.drift(str(pool)), strict=True)
    return compress_samples(
        MarketState(
            instant,
            nodes,
            round(usd_per_hour * math.exp(math.sqrt(shared) * r + math.sqrt(1 - shared) * o), 6),
        )
        for instant, nodes, (r, o) in zip(
            instants[:-1], _capacity(scene, pool), prices, strict=True
        )
    )


def _capacity(scene: _Scene, pool: Pool) -> Iterator[int]:
    """Nodes that the pool can carry, tick by tick."""
    random, parameters = scene.random(f"capacity/{pool}"), scene.parameters
    up_mean_h, down_mean_h = _means_h(scene, random)
    lives = {
        True: _Weibull(parameters.availability.up_shape, up_mean_h, scene.tick_h),
        False: _Weibull(parameters.availability.down_shape, down_mean_h, scene.tick_h),
    }
    strength = parameters.stress.strength
    up, age = random.random() < up_mean_h / (up_mean_h + down_mean_h), 0
    nodes = _nodes(random, parameters.capacity) if up else 0
    for stress in scene.stress(f"{pool.provider}/{pool.region}"):
        yield nodes
        chance = lives[up].gain(age) * math.exp(strength * stress if up else -strength * stress)
        age += 1
        if random.random() < -math.expm1(-chance):
            up, age = not up, 0
            nodes = _nodes(random, parameters.capacity) if up else 0


def _means_h(scene: _Scene, random: Random) -> tuple[float, float]:
    """Mean hours up and down of one pool of the profile."""
    sigma = scene.parameters.availability.pool_sigma
    return (
        scene.profile.mean_up_hours * math.exp(random.gauss(0, sigma)),
        scene.profile.mean_down_hours * math.exp(random.gauss(0, sigma)),
    )


def _nodes(random: Random, capacity: CapacityProfile) -> int:
    return random.randint(capacity.min_nodes, capacity.max_nodes)


def _check(
    pools_usd_per_hour: Mapping[Pool, float], hours: float, tick_s: float, start_at: datetime
) -> None:
    if not pools_usd_per_hour:
        raise MarketError(
            "a market of no pools cannot be generated",
            hint="give pools and prices",
            code="no_pools",
        )
    for pool, price in pools_usd_per_hour.items():
        if not (math.isfinite(price) and price > 0):
            raise MarketError(
                f"{pool}: a price of {price} $/h is impossible", code="impossible_price"
            )
    if not (math.isfinite(hours) and hours > 0 and math.isfinite(tick_s) and tick_s > 0):
        raise MarketError(f"a market of {hours} h in ticks of {tick_s} s cannot be generated")
    if start_at.tzinfo is None:
        raise MarketError(f"the start {start_at} is a naive time", hint="give it in UTC")
    if END_OF_TIME - start_at < timedelta(hours=hours, seconds=tick_s):
        raise MarketError(
            f"a market of {hours:g} h from {start_at:%Y-%m-%d} on ends after all dates"
        )


@dataclass(frozen=True, slots=True)
class AvailabilityProfile:
    """Weibull shapes of up- and down-times, and the spread of their means between pools."""

    up_shape: float
    down_shape: float
    pool_sigma: float


@dataclass(frozen=True, slots=True)
class StressProfile:
    """Shortage that the zones of a region share."""

    strength: float
    memory_hours: float
    shared_by_all_regions: float


@dataclass(frozen=True, slots=True)
class PriceProfile:
    """Mean-reverting steps of the price's logarithm."""

    changes_per_day: float
    step_sigma: float
    memory_days: float
    shared_by_region: float


@dataclass(frozen=True, slots=True)
class CapacityProfile:
    """How many nodes a pool carries while it has capacity."""

    min_nodes: int
    max_nodes: int


@dataclass(frozen=True, slots=True)
class MarketProfile:
    """How often capacity goes and how long it stays away."""

    name: str
    mean_up_hours: float
    mean_down_hours: float


@dataclass(frozen=True, slots=True)
class GeneratorParameters:
    """All of generator.toml."""

    availability: AvailabilityProfile
    stress: StressProfile
    price: PriceProfile
    capacity: CapacityProfile
    profiles: tuple[MarketProfile, ...]

    def profile(self, name: str) -> MarketProfile:
        """Raises MarketError where there is no such profile."""
        for profile in self.profiles:
            if profile.name == name:
                return profile
        raise MarketError(
            f"market profile {name!r} is unknown",
            hint=f"the profiles are {', '.join(p.name for p in self.profiles)}",
            code="unknown_profile",
        )


@cache
def generator_parameters() -> GeneratorParameters:
    """The parameters that costopt ships."""
    text = files("costopt.market").joinpath("data/generator.toml").read_text(encoding="utf-8")
    raw = tomllib.loads(text)
    return GeneratorParameters(
        availability=AvailabilityProfile(**raw["availability"]),
        stress=StressProfile(**raw["stress"]),
        price=PriceProfile(**raw["price"]),
        capacity=CapacityProfile(**raw["capacity"]),
        profiles=tuple(MarketProfile(name, **means) for name, means in raw["profiles"].items()),
    )


def fill_capacity(
    history: MarketHistory, *, seed: int, profile: str = "typical", tick_s: float = DEFAULT_TICK_S
) -> MarketHistory:
    """``history`` with the generator's capacity where a spot price is known and capacity is not.

    What was observed stays, and so do gaps. The same seed and profile fill a record that has
    grown as they filled it before. The capacity knows nothing of the prices: in a real market a
    price may rise as capacity goes. Raises MarketError where nothing is open.
    """
    open_pools = [pool for pool, recorded in history.pools.items() if any(_open(recorded))]
    if not open_pools:
        raise MarketError(
            f"market {history.name!r} leaves no capacity of spot pools open",
            hint="backtest takes it as it is",
            code="no_capacity",
        )
    begins_at = min(history.pools[pool].starts_at for pool in open_pools)
    ends_at = max(history.pools[pool].ends_at for pool in open_pools)
    drawn = generate_market(
        dict.fromkeys(open_pools, 1.0),
        hours=(ends_at - begins_at).total_seconds() / 3600 + tick_s / 3600,
        seed=seed,
        profile=profile,
        start_at=begins_at,
        tick_s=tick_s,
    )
    filled = {pool: _filled(history.pools[pool], drawn.pools[pool]) for pool in open_pools}
    note = f"capacity modelled: profile {profile}, seed {seed}"
    source = history.source if note in history.source else f"{history.source}; {note}"
    return replace(history, pools={**history.pools, **filled}, tick_s=None, source=source)


def _open(recorded: PoolHistory) -> Iterator[MarketState]:
    if recorded.pool.capacity_type is not CapacityType.SPOT:
        return
    for state in recorded.states:
        if state.nodes_available is None and state.price_usd_per_hour is not None:
            yield state


def _filled(recorded: PoolHistory, drawn: PoolHistory) -> PoolHistory:
    return PoolHistory(
        recorded.pool, compress_samples(_fill_states(recorded, drawn)), recorded.ends_at
    )


def _fill_states(recorded: PoolHistory, drawn: PoolHistory) -> Iterator[MarketState]:
    ends = [state.starts_at for state in recorded.states[1:]] + [recorded.ends_at]
    starts = [state.starts_at for state in drawn.states]
    for state, ends_at in zip(recorded.states, ends, strict=True):
        if state.nodes_available is not None or state.price_usd_per_hour is None:
            yield state
            continue
        index = max(bisect_right(starts, state.starts_at) - 1, 0)
        while index < len(starts) and starts[index] < ends_at:
            at = max(starts[index], state.starts_at)
            yield replace(state, starts_at=at, nodes_available=drawn.states[index].nodes_available)
            index += 1
