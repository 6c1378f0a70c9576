"""The generator's parameters, read from data/generator.toml, which says where they come from."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from costopt.domain.errors import MarketError


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
