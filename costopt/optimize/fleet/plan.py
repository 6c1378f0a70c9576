"""What is found for many jobs over slots, and its bound."""

from __future__ import annotations

from dataclasses import dataclass

from costopt.optimize.fleet.capacity import SharedCapacity
from costopt.optimize.fleet.master import DualValues
from costopt.optimize.fleet.menus import Menus
from costopt.optimize.fleet.schedule import JobSchedule
from costopt.optimize.slots import Slot
from costopt.optimize.tariff import ForecastTable


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """``schedules`` by job, None for those not served; ``bound_usd`` holds on ``slots``."""

    slots: tuple[Slot, ...]
    outlook: ForecastTable
    schedules: tuple[JobSchedule | None, ...]
    bound_usd: float
    duals: DualValues
    capacity: SharedCapacity
    columns: tuple[tuple[int, JobSchedule], ...]
    menus: Menus
    build_s: float = 0.0

    @property
    def score(self) -> float:
        """The objective in dollars."""
        return sum(s.total_score for s in self.schedules if s is not None)

    @property
    def gap(self) -> float:
        """How far the plan may be from the best one, in shares of it."""
        return max(0.0, self.score - self.bound_usd) / max(abs(self.score), 1e-9)
