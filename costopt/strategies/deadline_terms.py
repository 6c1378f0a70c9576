"""What the deadline program is solved for: lanes, the safe gang, and how the work changes."""

from __future__ import annotations

from dataclasses import dataclass, field

from costopt.market.lifetime import AgeRates

Tariff = tuple[float, ...]
"""What a step costs, as a factor, by the steps to go when it begins, from 0 up; the last factor
holds for more. Empty where all steps cost the same."""


@dataclass(frozen=True, slots=True)
class SpotOption:
    """A spot gang. ``cost`` is per step, ``speed`` in that of the safe gang, ``start`` in steps.

    ``share`` is that of the time in which its pool has capacity. A pool that has been down for long
    comes back no faster than at the class of age ``down_class``, whichever lanes are up. Lanes with
    the same ``place`` are gangs of one pool, which come and go together; "" is one of its own.
    """

    cost: float
    speed: float
    start: float
    rates: AgeRates
    share: float = 1.0
    down_class: int = 0
    place: str = ""
    tariff: Tariff = ()

    @property
    def cost_of_work(self) -> float:
        """Per step of the safe gang's work, in the mean over time."""
        mean = sum(self.tariff) / len(self.tariff) if self.tariff else 1.0
        return self.cost * mean / self.speed


@dataclass(frozen=True, slots=True)
class ProgramStage:
    """A stretch of the work, from ``begins`` to ``ends`` steps of the safe gang's work left.

    ``costs`` and ``speeds`` are those of each lane within it, in the units of ``SpotOption``;
    ``safe_cost`` is per step. Where it may not wait, it can still be begun late.
    """

    begins: float
    ends: float
    costs: tuple[float, ...]
    speeds: tuple[float, ...]
    safe_cost: float
    may_wait: bool = True


@dataclass(frozen=True, slots=True)
class DeadlineProblem:
    """What the program is solved for. All lanes have the same classes of age.

    ``guard`` is g. ``hop_class`` is the class of age of a pool that is gone to when one is lost.
    ``stages`` are all of the work, first to last; empty where all of it is as the lanes say.
    """

    step_h: float
    lanes: tuple[SpotOption, ...]
    safe_cost: float
    guard: float
    hop_class: int = 0
    safe_tariff: Tariff = ()
    stages: tuple[ProgramStage, ...] = ()
    heads: tuple[int, ...] = field(init=False)
    """The cheapest lane of each place, cheapest first."""

    def __post_init__(self) -> None:
        order = sorted(range(len(self.lanes)), key=lambda i: (self.lanes[i].cost_of_work, i))
        heads: dict[str | int, int] = {}
        for i in order:
            heads.setdefault(self.lanes[i].place or i, i)
        object.__setattr__(self, "heads", tuple(heads.values()))

    @property
    def classes(self) -> int:
        """Of age; one where there is no lane."""
        return len(self.lanes[0].rates.from_h) if self.lanes else 1

    @property
    def columns(self) -> int:
        """Values with so many steps to go, for each step to spare: of S, W and O."""
        return self.classes * (len(self.lanes) + 2 * (len(self.heads) + 1))

    def block_of(self, lane: int | None) -> int:
        """Where the place of a lane stands among the heads; after them where all are down."""
        if lane is None:
            return len(self.heads)
        place = self.lanes[lane].place
        if not place:
            return self.heads.index(lane)
        return next(b for b, head in enumerate(self.heads) if self.lanes[head].place == place)


def factor(tariff: Tariff, steps: int) -> float:
    """Of the cost of the step that begins with so many steps to go."""
    return tariff[min(steps, len(tariff) - 1)] if tariff else 1.0
