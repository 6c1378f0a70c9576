"""Why a candidate that could have been chosen was not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from costopt.domain.market import Pool
from costopt.domain.plan import Forecast, Rejection
from costopt.domain.policy import Policy
from costopt.optimize.configuration import ConfigurationTable
from costopt.optimize.demand import Demand
from costopt.optimize.entering import EnteringPrice
from costopt.optimize.fallback import choose_fallback_row
from costopt.optimize.prune import single_held_h, single_score, single_work_units, usable_h
from costopt.optimize.rates import Array

LIKELY = 0.5
"""From this probability on the change to the fallback makes a candidate's figures."""


@dataclass(frozen=True, slots=True)
class RejectionExplainer:
    """Judges the rows of a job's table against the plan, whose objective is ``plan_score_usd``.

    Codes: ``throughput_unknown`` (of a phase); ``late``; ``dated`` (the capacity is there for too
    short a time); ``risk`` (not sure enough, or sure only by way of the fallback); ``budget``;
    ``further_aims`` (cheaper, and within the tolerance the plan is better in the objective's
    further aims); ``fallback`` (cheaper than the plan if all goes well, but not on average);
    ``dearer``;
    ``unplanned`` (nothing against it, but there is no plan).
    """

    table: ConfigurationTable
    demand: Demand
    policy: Policy
    plan_score_usd: float | None
    held_h: Array
    usable_h: Array
    units: Array
    score_usd: Array
    has_fallback: bool
    entering: EnteringPrice | None

    @classmethod
    def against(
        cls,
        table: ConfigurationTable,
        demand: Demand,
        policy: Policy,
        plan_score_usd: float | None,
        entering: EnteringPrice | None = None,
    ) -> Self:
        """Judge against a plan; None where none was made. ``entering`` tells at which price."""
        return cls(
            table,
            demand,
            policy,
            plan_score_usd,
            single_held_h(table, demand),
            usable_h(table, demand),
            single_work_units(table, demand),
            single_score(table, demand),
            choose_fallback_row(table, demand) is not None,
            entering,
        )

    def rejection(self, row: int, forecast: Forecast) -> Rejection:
        """The first thing that speaks against the row."""
        pool, _ = self.table.parts(row)[0]
        found = self._phase(row) or self._time(row, forecast) or self._budget(forecast)
        if found is not None:
            return Rejection(pool, *found)
        if self.plan_score_usd is None:
            return Rejection(pool, "unplanned", "no plan was made")
        return self._more_expensive(pool, row, self.plan_score_usd)

    def _phase(self, row: int) -> tuple[str, str] | None:
        """Whether nothing is known of a phase's speed on the row."""
        unknown = [
            stage.name
            for number, stage in enumerate(self.demand.stages)
            if self.table.pace[number, row] <= 0
        ]
        if not unknown:
            return None
        return "throughput_unknown", f"the speed of phase {unknown[0]} on it is unknown"

    def _time(self, row: int, forecast: Forecast) -> tuple[str, str] | None:
        asked = self.policy.risk.on_time
        late_h = (forecast.finish_p50_at - self.demand.job.deadline_at).total_seconds() / 3600
        if late_h > 0:
            return "late", f"finishes {late_h:,.1f} h late{_saved_in_vain(forecast)}"
        if forecast.on_time.value < asked and forecast.on_time.high < 1:
            sure = f"P(on time) {forecast.on_time.value:.2f} < {asked:g}"
            return "risk", f"{sure}{_saved_in_vain(forecast)}"
        if self._held_too_short(row):
            return "dated", f"can be used for {max(0.0, self.usable_h[row]):,.1f} h only"
        saved = self.has_fallback and not self.table.firm[row]
        if saved and self._expected_h(row) > self.demand.hours_left:
            return "risk", "too slow: on time only by changing to uninterrupted capacity"
        if not saved and self.held_h[row] > self.demand.hours_left:
            return "risk", "leaves no time for the reserve and for what may go wrong"
        return None

    def _held_too_short(self, row: int) -> bool:
        """Whether the whole job fits the job's own time, but not the time of a dated offer."""
        usable = float(self.usable_h[row])
        return usable < self.demand.hours_left and self._expected_h(row) > usable

    def _expected_h(self, row: int) -> float:
        table = self.table
        paid_h = float(self.units[row]) / float(table.paid_units_per_hour[row])
        return paid_h * float(table.calendar[row]) + float(table.start_h[row])

    def _budget(self, forecast: Forecast) -> tuple[str, str] | None:
        budget = self.demand.job.budget
        if budget.max_usd is not None and forecast.usd_p50 > budget.max_usd:
            return "budget", (
                f"costs {forecast.usd_p50:,.2f} $, the budget is {budget.max_usd:,.2f} $"
            )
        kwh = forecast.kwh
        if budget.max_kwh is not None and kwh is not None and kwh > budget.max_kwh:
            return "budget", f"takes {kwh:,.1f} kWh, the budget is {budget.max_kwh:,.1f} kWh"
        return None

    def _more_expensive(self, pool: Pool, row: int, plan_score_usd: float) -> Rejection:
        objective = self.policy.objective
        only_usd = objective.usd_per_kwh == 0 and objective.usd_per_tonne_co2e == 0
        verb = "costs" if only_usd else "scores"
        score_usd = float(self.score_usd[row])
        if plan_score_usd <= 0 < score_usd:
            return Rejection(pool, "dearer", f"{verb} {score_usd:,.2f}, the chosen nothing")
        ratio = score_usd / max(plan_score_usd, 1e-12)
        if ratio < 1 and objective.then:
            aims = ", ".join(objective.then)
            return Rejection(
                pool, "further_aims", f"cheaper, but the next aim ({aims}) speaks for the plan"
            )
        if ratio < 1:
            reason = "cheaper if all goes well, but leaves more to the dearer fallback"
            return Rejection(pool, "fallback", reason)
        more = (
            f"{ratio:.1f}× the chosen" if ratio >= 1.1 else f"{ratio - 1:.1%} more than the chosen"
        )
        return Rejection(pool, "dearer", f"{verb} {more}", self._enters_below_usd_per_hour(row))

    def _enters_below_usd_per_hour(self, row: int) -> float | None:
        if self.entering is None or self.table.offer[row] < 0:
            return None
        return self.entering.usd_per_hour(int(self.table.offer[row]))


def _saved_in_vain(forecast: Forecast) -> str:
    """Said where the figures are rather those of the fallback."""
    return (
        ", even by changing to uninterrupted capacity"
        if forecast.falls_back.value >= LIKELY
        else ""
    )
