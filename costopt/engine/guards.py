"""What stops launches: budgets, quotas, fleet size, watts, launch rate.

Guards never stop a checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from costopt.domain.account import Account
from costopt.domain.fleet import Launch, Node
from costopt.domain.job import Job
from costopt.domain.policy import Limits
from costopt.engine.draw import ROUNDING_KW, Draw
from costopt.engine.journal import Journal
from costopt.engine.quotas import Quotas
from costopt.engine.refusal import Refusal
from costopt.engine.world import World

MICROS = 1_000_000


class Guards:
    """Checks launches and spending against the policy, the account and the job's budget."""

    def __init__(
        self, world: World, journal: Journal, account: Account, jobs: Mapping[str, Job]
    ) -> None:
        self._journal = journal
        self._account = account
        self._jobs = jobs
        self._draw = Draw(journal, world.powers)
        self._quotas = Quotas(account, world.machines, self._draw, jobs)

    def over_budget(self, job: Job, limits: Limits, now: datetime) -> Refusal | None:
        """Whether the job or its tenant has used up what it may, so that it must save and stop."""
        tenant = self._tenant_refusal(job, now)
        if tenant is not None:
            return tenant
        caps = [cap for cap in (job.budget.max_usd, limits.max_usd) if cap is not None]
        if not caps and job.budget.max_kwh is None and limits.max_usd_per_month is None:
            return None
        summary = self._journal.accounts[job.name].summary(now)
        spent = summary.usd_micros / MICROS
        if caps and spent >= min(caps):
            return Refusal("max_usd", f"spent ${spent:.2f} of a budget of ${min(caps):.2f}")
        if job.budget.max_kwh is not None and summary.wh / 1000 >= job.budget.max_kwh:
            return Refusal(
                "max_kwh",
                f"used {summary.wh / 1000:.2f} kWh of a budget of {job.budget.max_kwh:.2f} kWh",
            )
        month = limits.max_usd_per_month
        if month is not None and self._month_usd(now) >= month:
            return Refusal("max_usd_per_month", f"the ${month:.2f} of {now:%B %Y} are spent")
        return None

    def launch_refusal(
        self,
        launch: Launch,
        usd_per_hour: float,
        nodes: tuple[Node, ...],
        limits: Limits,
        now: datetime,
    ) -> Refusal | None:
        """Why this launch may not happen now, or None where it may."""
        if limits.max_nodes is not None and len(nodes) + launch.nodes > limits.max_nodes:
            return Refusal(
                "max_nodes",
                f"{len(nodes)} nodes run and {launch.nodes} more would exceed {limits.max_nodes}",
            )
        per_hour = sum(n.usd_per_hour for n in nodes) + usd_per_hour * launch.nodes
        if limits.max_usd_per_hour is not None and per_hour > limits.max_usd_per_hour:
            return Refusal(
                "max_usd_per_hour",
                f"the fleet would cost ${per_hour:.2f}/h, more than ${limits.max_usd_per_hour:.2f}",
            )
        if limits.max_kw is not None:
            kw = self._draw.kw(launch, nodes)
            if kw > limits.max_kw + ROUNDING_KW:
                return Refusal(
                    "max_kw", f"the fleet would draw {kw:.2f} kW, more than {limits.max_kw:g} kW"
                )
        over_quota = self._quotas.refusal(launch, usd_per_hour, nodes)
        if over_quota is not None:
            return over_quota
        return self._rate_refusal(launch, limits, now)

    def _rate_refusal(self, launch: Launch, limits: Limits, now: datetime) -> Refusal | None:
        hour_ago = now - timedelta(hours=1)
        recent = sum(r.launches_since(hour_ago) for r in self._journal.records.values())
        most = limits.max_launches_per_hour
        if most is not None and recent + launch.nodes > most:
            return Refusal(
                "max_launches_per_hour", f"{recent} nodes were launched in the last hour"
            )
        return None

    def _tenant_refusal(self, job: Job, now: datetime) -> Refusal | None:
        """Whether the jobs of this engine that are the tenant's have spent its dollars."""
        tenant = self._account.tenants.get(job.tenant)
        if tenant is None or tenant.max_usd is None:
            return None
        accounts = (
            self._journal.accounts[n] for n, j in self._jobs.items() if j.tenant == tenant.name
        )
        spent = sum(account.summary(now).usd_micros for account in accounts) / MICROS
        if spent < tenant.max_usd:
            return None
        return Refusal(
            "tenant_max_usd",
            f"tenant {tenant.name} has spent ${spent:.2f} of ${tenant.max_usd:.2f}",
        )

    def _month_usd(self, now: datetime) -> float:
        """What the jobs of this engine have cost since the calendar month (UTC) began."""
        begins_at = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        accounts = self._journal.accounts.values()
        return sum(a.usd_micros_between(begins_at, now) for a in accounts) / MICROS
