"""What is spent of each limit on dollars, and when it will be spent at the present rate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from costopt.daemon.shared_state import BudgetUse, FleetNode, JobForecast
from costopt.domain.account import Account, AccountGuards, Tenant
from costopt.domain.limits import LimitScope
from costopt.domain.money import MICROS
from costopt.domain.policy import BUDGET_LIMITS
from costopt.engine.billing import month_of
from costopt.engine.engine import Engine
from costopt.ledger.summary import JobSummary

JOB_BUDGET = "dollars of its budget"


def budget_uses(
    engine: Engine,
    account: Account,
    nodes_of: Mapping[str, Sequence[FleetNode]],
    now: datetime,
    forecasts: Mapping[str, JobForecast],
) -> Iterator[BudgetUse]:
    """Yield the use of the limits of the account, of its tenants, and of the jobs that run.

    Whether a job's budget lasts is by its forecast, where one was made, else by its pace.
    """
    spending = engine.spending
    spent = {LimitScope.JOB: spending.usd, LimitScope.MONTH: spending.month_usd}
    nodes = [node for each in nodes_of.values() for node in each]
    holders: list[tuple[str | None, AccountGuards | Tenant]] = [(None, account.guards)]
    holders += account.tenants.items()
    for tenant, holder in holders:
        rate = sum(node.usd_per_hour for node in nodes if tenant in (None, node.tenant))
        for spec in BUDGET_LIMITS:
            most = getattr(holder, spec.field)
            if most is None:
                continue
            usd = spent[spec.scope](now, tenant)
            until = _next_month(now) if spec.scope is LimitScope.MONTH else None
            spent_at = _spent_at(now, usd, most, rate, until)
            yield BudgetUse(tenant, spec.label, usd, most, "", spent_at)
    for name, job in engine.jobs.items():
        use = _of_job(job.tenant, engine.journal.summary(name, now), forecasts.get(name))
        if use is not None:
            yield use


def _of_job(tenant: str, summary: JobSummary, made: JobForecast | None) -> BudgetUse | None:
    if summary.budget_usd_micros is None:
        return None
    most, by_pace = summary.budget_usd_micros / MICROS, summary.forecast_usd_micros
    expected = None if by_pace is None else by_pace / MICROS
    if made is not None:
        expected = made.usd
    spent_at = None
    if expected is not None and expected > most:
        rate = summary.usd_micros_per_hour / MICROS
        spent_at = _spent_at(summary.now, summary.usd, most, rate, None)
    return BudgetUse(tenant, JOB_BUDGET, summary.usd, most, summary.job, spent_at)


def _spent_at(
    now: datetime, usd: float, most: float, usd_per_hour: float, until: datetime | None
) -> datetime | None:
    if usd_per_hour <= 0 or usd >= most:
        return None
    hours = (most - usd) / usd_per_hour
    if until is not None and hours > (until - now).total_seconds() / 3600:
        return None
    return now + timedelta(hours=hours) if hours < MAX_HOURS else None


MAX_HOURS = 10 * 8766.0
"""Ten years; beyond, no rate lasts."""


def _next_month(now: datetime) -> datetime:
    begin = month_of(now)
    return month_of(begin + timedelta(days=32))
