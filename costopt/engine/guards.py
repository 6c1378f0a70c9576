"""Guards, which stop launches: budgets, quotas, fleet size, watts and launch rate.

Guards never stop a checkpoint. ``LaunchLimits`` holds what limits a job's launches at one tick.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from costopt.domain.account import Account
from costopt.domain.events import GuardTripped
from costopt.domain.fleet import Launch, Node
from costopt.domain.job import Job
from costopt.domain.limits import ROUNDING, Resource
from costopt.domain.market import Pool
from costopt.domain.money import MICROS
from costopt.domain.policy import Limits
from costopt.engine.billing import Payer, SpendTracker
from costopt.engine.journal import Journal
from costopt.engine.quotas import GuardViolation, PowerDraw, QuotaLedger, ResourceUsage, UsageTally
from costopt.engine.settings import World


@dataclass(frozen=True, slots=True)
class FormerLaunches:
    """The times and node counts of launch requests for a job that was closed."""

    payer: Payer
    launches: tuple[tuple[datetime, int], ...]

    @property
    def last_at(self) -> datetime:
        """Return the time of the last request."""
        return max(at for at, _ in self.launches)

    def nodes_since(self, when: datetime) -> int:
        """Return the number of nodes requested after ``when``."""
        return sum(nodes for at, nodes in self.launches if at > when)


class Guards:
    """Checks launches and spending against the policy, the account and the job's budget.

    A policy's limits bind the jobs that follow it together, the account's bind all jobs.
    """

    def __init__(
        self,
        world: World,
        journal: Journal,
        account: Account,
        jobs: Mapping[str, Job],
        spending: SpendTracker,
    ) -> None:
        self._journal = journal
        self.account = account
        self._spending = spending
        self._former: dict[str, FormerLaunches] = {}
        self._jobs = jobs
        self._draw = PowerDraw(journal, world.powers)
        self.quotas = QuotaLedger(account, world.machines, self._draw, jobs)

    def set_account(self, account: Account) -> None:
        """Apply this account's limits from now on."""
        self.account = account
        self.quotas.set_account(account)

    def close(self, job: str, payer: Payer, now: datetime) -> None:
        """Store a closed job's launches of the last hour, before the journal forgets it."""
        recent = self._journal.records[job].launches_since(now - timedelta(hours=1))
        rented = ((at, self.counted_nodes(Pool.parse(pool), nodes)) for at, nodes, pool in recent)
        if launches := tuple(each for each in rented if each[1]):
            self._former[job] = FormerLaunches(payer, launches)

    def reopen(self, job: str) -> None:
        """Count the job from the journal again, which has opened it."""
        self._former.pop(job, None)

    def check_spend(self, job: str, refusal: GuardViolation, now: datetime) -> None:
        """Record a guard violation, once for as long as it lasts."""
        if self._journal.records[job].guard != refusal.guard:
            self._journal.write(
                GuardTripped(
                    at=now, job=job, guard=refusal.guard, message=refusal.message, pool=refusal.pool
                )
            )

    def over_budget(self, job: Job, bounds: LaunchLimits, now: datetime) -> GuardViolation | None:
        """Return why the job must save and stop, as its budget is used up, or None."""
        return (
            self._account_refusal(now)
            or self._tenant_refusal(job, now)
            or self._job_refusal(job, bounds.limits, now)
            or self._job_month_refusal(job, now)
            or self._month_refusal(job, bounds, now)
        )

    def tally(self, nodes: Iterable[Node], now: datetime) -> UsageTally:
        """Return what these nodes hold, and what was requested in the last hour."""
        tally, hour_ago = self.quotas.tally(nodes), now - timedelta(hours=1)
        for job, record in self._journal.records.items():
            recent = record.launches_since(hour_ago)
            counted = (self.counted_nodes(Pool.parse(pool), nodes) for _, nodes, pool in recent)
            tally.add(job, ResourceUsage(launched=sum(counted)))
        self._former = {job: each for job, each in self._former.items() if each.last_at > hour_ago}
        for each in self._former.values():
            launched = each.nodes_since(hour_ago)
            tally.whole.add(ResourceUsage(launched=launched))
            tally.launched_for[each.payer] = tally.launched_for.get(each.payer, 0) + launched
        return tally

    def counted_nodes(self, pool: Pool, nodes: int) -> int:
        """Return how many of the nodes count against limits on launches: none of a cluster that the
        account owns, where each change of a gang's slices is a launch and costs nothing."""
        return 0 if self.account.owns(pool) else nodes

    def launch_refusal(
        self, launch: Launch, usd_per_hour: float, tally: UsageTally, bounds: LaunchLimits
    ) -> GuardViolation | None:
        """Return why this launch may not happen, or None; ``tally`` is of all nodes now."""
        return (
            self._fleet_refusal(launch, usd_per_hour, tally, bounds)
            or self._job_hourly_refusal(launch, usd_per_hour, tally)
            or self.quotas.refusal(launch, usd_per_hour, tally)
            or self._rate_refusal(launch, tally, bounds)
        )

    def _fleet_refusal(
        self, launch: Launch, usd_per_hour: float, tally: UsageTally, bounds: LaunchLimits
    ) -> GuardViolation | None:
        """Return the violation if the policy's jobs would hold more at a time than it allows."""
        for spec, resource, most in bounds.limits.concurrent():
            if resource is Resource.KW:
                together = self._draw.kw(launch, tally.nodes_of(bounds.jobs))
            else:
                each = self.quotas.node_load(resource, launch.pool, usd_per_hour)
                together = tally.of(bounds.jobs).amount(resource) + launch.nodes * each
            if together > most + ROUNDING:
                return GuardViolation(
                    spec.field,
                    f"with this launch the fleet {resource.verb} {resource.text(together)}; "
                    f"{spec.field} is {most:g}",
                )
        return None

    def _job_hourly_refusal(
        self, launch: Launch, usd_per_hour: float, tally: UsageTally
    ) -> GuardViolation | None:
        """Return the violation if the job would cost more per hour than its budget allows."""
        most = self._jobs[launch.job].budget.max_usd_per_hour
        alone = tally.of_job(launch.job).amount(Resource.USD_PER_HOUR) + usd_per_hour * launch.nodes
        if most is None or alone <= most + ROUNDING:
            return None
        return GuardViolation(
            "job_max_usd_per_hour",
            f"job {launch.job} would cost ${alone:.2f}/h, more than its ${most:.2f}",
        )

    def _rate_refusal(
        self, launch: Launch, tally: UsageTally, bounds: LaunchLimits
    ) -> GuardViolation | None:
        if self.account.owns(launch.pool):
            return None
        former = tally.launched_for.get(self._spending.payer(launch.job), 0)
        together = tally.of(bounds.jobs).launched + former
        most = bounds.limits.max_launches_per_hour
        if most is not None and together + launch.nodes > most:
            return GuardViolation(
                "max_launches_per_hour", f"{together} nodes were launched in the last hour"
            )
        most = self.account.guards.max_launches_per_hour
        if most is None:
            return None
        if tally.whole.launched + launch.nodes <= most:
            return None
        return GuardViolation(
            "account_max_launches_per_hour",
            f"the account allows {most} launches an hour; {launch.nodes} more would exceed this",
        )

    def _job_refusal(self, job: Job, limits: Limits, now: datetime) -> GuardViolation | None:
        caps = [cap for cap in (job.budget.max_usd, limits.max_usd) if cap is not None]
        if not caps and job.budget.max_kwh is None:
            return None
        summary = self._journal.summary(job.name, now)
        spent = summary.usd_micros / MICROS
        if caps and spent >= min(caps):
            return GuardViolation("max_usd", f"spent ${spent:.2f} of a budget of ${min(caps):.2f}")
        return _energy_refusal(job.budget.max_kwh, summary.kwh)

    def _job_month_refusal(self, job: Job, now: datetime) -> GuardViolation | None:
        most = job.budget.max_usd_per_month
        if most is None or self._spending.job_month_usd(job.name, now) < most:
            return None
        return GuardViolation(
            "job_max_usd_per_month", f"job {job.name} has spent its ${most:.2f} of {now:%B %Y}"
        )

    def _month_refusal(
        self, job: Job, bounds: LaunchLimits, now: datetime
    ) -> GuardViolation | None:
        """Return the violation if the policy's jobs of the tenant have used its monthly dollars."""
        most, payer = bounds.limits.max_usd_per_month, self._spending.payer(job.name)
        if most is None or self._spending.month_usd(now, payer.tenant, payer.policy) < most:
            return None
        return GuardViolation("max_usd_per_month", f"the ${most:.2f} of {now:%B %Y} are spent")

    def _tenant_refusal(self, job: Job, now: datetime) -> GuardViolation | None:
        """Return the violation if the tenant's jobs have spent its dollars, in total or monthly."""
        tenant = self.account.tenants.get(job.tenant)
        if tenant is None:
            return None
        whole, month = tenant.max_usd, tenant.max_usd_per_month
        if whole is not None and (spent := self._spending.usd(now, tenant.name)) >= whole:
            return GuardViolation(
                "tenant_max_usd", f"tenant {tenant.name} has spent ${spent:.2f} of ${whole:.2f}"
            )
        if month is not None and (spent := self._spending.month_usd(now, tenant.name)) >= month:
            return GuardViolation(
                "tenant_max_usd_per_month",
                f"tenant {tenant.name} has spent ${spent:.2f} of ${month:.2f} in {now:%B %Y}",
            )
        return None

    def _account_refusal(self, now: datetime) -> GuardViolation | None:
        """Return the violation if all jobs together have spent what the account allows.

        It discloses no figure of other tenants, as the job's tenant can read it.
        """
        whole, month = self.account.guards.max_usd, self.account.guards.max_usd_per_month
        if whole is not None and self._spending.usd(now) >= whole:
            return GuardViolation("account_max_usd", f"the account's ${whole:.2f} are spent")
        if month is not None and self._spending.month_usd(now) >= month:
            return GuardViolation(
                "account_max_usd_per_month", f"the account's ${month:.2f} of {now:%B %Y} are spent"
            )
        return None


def _energy_refusal(most: float | None, kwh: float | None) -> GuardViolation | None:
    """Return the violation of a budget in kWh that is spent, or that unknown use makes unsafe."""
    if most is None:
        return None
    if kwh is None:
        unknown = "the energy used is unknown, as is the power of a node that ran"
        return GuardViolation(
            "max_kwh", f"{unknown}; a budget of {most:.2f} kWh cannot be enforced"
        )
    if kwh < most:
        return None
    return GuardViolation("max_kwh", f"used {kwh:.2f} kWh of a budget of {most:.2f} kWh")


@dataclass(frozen=True, slots=True)
class LaunchLimits:
    """The limits in force, dollars per node-hour of the pools with capacity, and the jobs that the
    limits bind together."""

    limits: Limits
    prices: Mapping[Pool, float]
    jobs: frozenset[str]
