"""Budgets beside what a plan is expected to come to, as warnings and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from costopt.domain.job import Job
from costopt.domain.plan import Forecast
from costopt.domain.policy import BUDGET_LIMITS, Policy
from costopt.formatting import number_text, usd_text
from costopt.render.table import Row, records


@dataclass(frozen=True, slots=True)
class _BudgetForecast:
    """A budget beside what the plan is expected to come to, and its high end (95 %)."""

    name: str
    unit: str
    most: float
    expected: float | None
    high: float | None

    @property
    def at_risk(self) -> bool:
        """Whether the budget may be spent before the job is done, for all that is known."""
        return self.high is None or self.high > self.most


def budget_rows(job: Job, policy: Policy, now: datetime, forecast: Forecast) -> list[Row]:
    """Every budget in dollars or kWh that holds for the job, for JSON."""
    return records(
        _budget_forecasts(job, policy, now, forecast), "name unit most expected high at_risk"
    )


def budget_warnings(job: Job, policy: Policy, now: datetime, forecast: Forecast) -> Iterator[str]:
    """A sentence for each budget that may be spent before the job is done."""
    for each in _budget_forecasts(job, policy, now, forecast):
        if each.at_risk:
            yield (
                f"Warning: {each.name} of {_amount(each, each.most)} may not last: the plan takes "
                f"{_amount(each, each.expected)}, at the 95th percentile "
                f"{_amount(each, each.high)}. Once it is spent, the job saves and stops."
            )


def _budget_forecasts(
    job: Job, policy: Policy, now: datetime, forecast: Forecast
) -> Iterator[_BudgetForecast]:
    budget = job.budget
    begin_at, end_at = max(now, job.start_at), job.until_at
    of_policy = (
        (f"the policy's {spec.field}", policy.limits.maximum(spec)) for spec in BUDGET_LIMITS
    )
    for name, most in (("the job's budget", budget.max_usd_between(begin_at, end_at)), *of_policy):
        if most is not None:
            yield _BudgetForecast(name, "USD", most, forecast.usd_mean, forecast.usd_p95)
    if budget.max_kwh is not None:
        yield _BudgetForecast(
            "the job's budget", "kWh", budget.max_kwh, forecast.kwh, forecast.kwh_high
        )


def _amount(each: _BudgetForecast, value: float | None) -> str:
    return usd_text(value) if each.unit == "USD" else f"{number_text(value)} kWh"
