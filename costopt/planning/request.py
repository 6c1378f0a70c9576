"""Loads and validates inputs, and plans a job that has not begun."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from costopt.domain.account import UNLIMITED, Account
from costopt.domain.errors import InfeasibleError, SpecError, StaleDataError
from costopt.domain.estimate import Series
from costopt.domain.job import Job
from costopt.domain.market import Offer, Pool
from costopt.domain.plan import Plan, PlanStatus, Rejection
from costopt.domain.policy import CarbonSignal, Policy
from costopt.domain.ports import InstanceCatalog
from costopt.domain.progress import Progress
from costopt.domain.transfers import transfer_table, with_root_volumes
from costopt.domain.view import JobView, View
from costopt.formatting import seconds_text
from costopt.planning.quotes import QuoteSet

if TYPE_CHECKING:
    from costopt.energy.carbon_forecast import CarbonForecasts
    from costopt.market.screening import AgeLimit
    from costopt.optimize.frontier import FrontierPoint
    from costopt.optimize.request import PlanRequest

MAX_REGIONS_NAMED = 3


def plan_job(
    job: Job,
    policy: Policy,
    seen: QuoteSet,
    *,
    explain: bool = True,
    account: Account = UNLIMITED,
    followed: bool = False,
) -> Plan:
    """The plan of a job that has not begun, with the forecast of what its policy will run.

    ``followed``: with that of following the plan. Raises StaleDataError.
    """
    from costopt.optimize.planner import plan
    from costopt.planning.forecast.replay_forecast import choose_forecaster

    forecaster = None if followed else choose_forecaster((job,), policy, seen, account)

    def make(each: Job) -> Plan:
        request = build_plan_request((each,), policy, seen, account)
        return plan(request, explain=explain, forecaster=forecaster)

    return plan_with_patience(job, make)


def plan_with_patience(job: Job, make: Callable[[Job], Plan]) -> Plan:
    """Return the plan that ``make`` returns of the job.

    A job without a deadline has one in plans, its last start on safe capacity. That may leave no
    time, as where waiting is worth more than the capacity costs: then no time limits the job.
    """
    made = make(job)
    if made.status is not PlanStatus.INFEASIBLE or job.deadline_at is not None:
        return made
    return make(replace(job, deadline_at=job.until_at))


def plan_frontier(
    job: Job, policy: Policy, seen: QuoteSet, points: int, account: Account = UNLIMITED
) -> tuple[FrontierPoint, ...]:
    """Plans that no other beats in dollars, kWh and finish, by ascending dollars.

    At most ``points``; empty where there is no plan, or no price is fresh.
    """
    from costopt.optimize.frontier import frontier

    try:
        request = build_plan_request((job,), policy, seen, account)
        return frontier(request, points=points)
    except StaleDataError:
        return ()


def build_plan_request(
    jobs: Sequence[Job], policy: Policy, seen: QuoteSet, account: Account
) -> PlanRequest:
    """Return the request for a plan of jobs that have not begun, at the account's prices. Raise
    StaleDataError."""
    from costopt.engine.settings import DEFAULT_TICK_S
    from costopt.optimize.request import build_request

    account = replace(account, quotas=(*account.quotas, *seen.quotas))
    offers = account.price_terms.offers(seen.offers, (), seen.now)
    view = build_view(jobs, policy, offers, seen.now, account, age_limit=seen.age_limit)
    pools, until = [offer.pool for offer in view.offers], max(job.until_at for job in jobs)
    carbon = forecast_carbon(seen, view.policy, pools, until)
    listed = forecast_prices(seen, pools, until)
    prices = account.price_terms.forecasts(listed, view.offers, seen.now, until)
    tick_s = None if seen.history is None else seen.history.tick_s
    view = replace(view, price_forecasts=prices, carbon_forecasts=carbon.series)
    view = replace(view, tick_s=tick_s or DEFAULT_TICK_S, notice_s=seen.notice_s)
    return build_request(view)


def build_view(
    jobs: Sequence[Job],
    policy: Policy,
    offers: Sequence[Offer],
    now: datetime,
    account: Account,
    *,
    age_limit: AgeLimit | None = None,
) -> View:
    """Return what is known of jobs that have not begun, with no others beside them, at ``now``.

    ``age_limit`` is for offers of price lists; of others, limits.max_price_age_s counts.
    Raises StaleDataError where every price that the policy allows is too old.
    """
    from costopt.catalog.site_machines import account_catalog
    from costopt.energy import NodePowerModel
    from costopt.engine.cohort import effective_limits
    from costopt.market.screening import screen_for_job, screen_offers
    from costopt.strategies.patience import with_deadlines

    left_s = min((job.until_at - now).total_seconds() for job in jobs)
    limits = effective_limits(policy, queue_length=len(jobs), slack_s=left_s, now=now)
    policy = replace(policy, limits=limits)
    known = account_catalog(account)
    model, signal = NodePowerModel(known), policy.objective.carbon_signal
    usable, rejections = screen_offers(offers, policy, now, check_age=age_limit is None)
    if age_limit is not None:
        fit = {offer for job in jobs for offer in screen_for_job(usable, job, known)[0]}
        old = _old_prices([offer for offer in usable if offer in fit], age_limit, known, now)
        usable = tuple(offer for offer in usable if offer.pool not in old)
        rejections = (*rejections, *old.values())
    stale = [rejection for rejection in rejections if rejection.code == "price_stale"]
    if stale and not usable:
        raise StaleDataError(
            f"every price that the policy allows is too old: {stale[0].reason}",
            hint="use a newer market history, or raise limits.max_price_age in the policy",
        )
    pools = [offer.pool for offer in usable]
    seen = View(
        now=now,
        tick_s=0.0,
        uninterruptible_s=0.0,
        jobs=tuple(JobView(job, Progress()) for job in jobs),
        offers=usable,
        machines={pool: machine for pool in pools if (machine := known.instance_type(pool))},
        powers={pool: power for pool in pools if (power := model.node_power(pool, signal))},
        policy=policy,
        rejections=rejections,
        transfers=transfer_table(jobs, pools, with_root_volumes(known.transfer, account.providers)),
        account=account,
    )
    return with_deadlines(seen)


def _old_prices(
    offers: Sequence[Offer], age_limit: AgeLimit, machines: InstanceCatalog, now: datetime
) -> Mapping[Pool, Rejection]:
    """Return those of the offers whose price is too old. Raise StaleDataError if all are."""
    from costopt.market.screening import screen_age, screen_outdated

    usable, old = screen_age(offers, age_limit, now)
    if old and not usable:
        prices = [offer.price_usd_per_hour for offer in offers]
        newest_s = min(age_s for each in prices if each and (age_s := each.age_s(now)) is not None)
        raise StaleDataError(
            f"every price of a machine for this job is older than {seconds_text(age_limit.max_s)}, "
            f"the newest {seconds_text(newest_s)}",
            hint="costopt catalog update fetches today's price lists; or raise --max-age",
            code="price_old",
        )
    _, outdated = screen_outdated(usable, machines, now)
    return {rejection.pool: rejection for rejection in (*old, *outdated)}


def raise_if_infeasible(made: Plan, job: Job) -> None:
    """Raise InfeasibleError, naming what binds, where the plan does not end the job in time."""
    if made.status is PlanStatus.INFEASIBLE:
        due, binding = job.until_at.astimezone(UTC), made.binding or "for an unknown reason"
        why_not = "costopt plan --explain says of each offer why it is out"
        others = "costopt what-if shows which deadlines, policies and terms would do"
        raise InfeasibleError(
            f"no plan finishes {job.name} by {due:%Y-%m-%d %H:%MZ}: {binding}",
            hint=why_not if binding.startswith("resources:") else others,
            code="infeasible",
        )


def forecast_prices(
    seen: QuoteSet, pools: Iterable[Pool], until: datetime
) -> Mapping[Pool, Series]:
    """Dollars per node-hour of the pools whose forecast has proven better than the present price.

    None for list prices, and from a record only what it held by now.
    """
    if seen.history is None:
        return {}
    from costopt.market.forecast import forecast_prices

    return forecast_prices(seen.history, pools, seen.now, until)


def forecast_carbon(
    seen: QuoteSet, policy: Policy, pools: Iterable[Pool], until: datetime
) -> CarbonForecasts:
    """gCO2e/kWh of the pools' regions, from intensities of the policy's signal alone.

    Live ones are asked for, which takes at most ten seconds in all.
    """
    from costopt.catalog import load_catalog
    from costopt.energy.carbon import CarbonHistory
    from costopt.energy.carbon_forecast import CarbonForecasts, forecast_carbon

    if seen.carbon is None or seen.carbon.carbon_signal is not policy.objective.carbon_signal:
        return CarbonForecasts({}, {})
    known = load_catalog()
    places = dict.fromkeys((pool.provider, pool.region) for pool in pools)
    if not isinstance(seen.carbon, CarbonHistory):
        names = [f"{provider}/{region}" for provider, region in places]
        seen.carbon.prepare(names, seen.now)
        return seen.carbon.forecast(names, seen.now, until)
    regions = [region for place in places if (region := known.region(*place))]
    return forecast_carbon(seen.carbon, regions, seen.now, until)


def carbon_notes(seen: QuoteSet, policy: Policy, until: datetime) -> Iterator[str]:
    """Where the intensities that were given do not count, and why."""
    from costopt.energy.carbon import CarbonHistory

    if seen.carbon is None:
        return
    asked, given = policy.objective.carbon_signal, seen.carbon.carbon_signal
    if asked is not given:
        kinds = {CarbonSignal.AVERAGE: "averages", CarbonSignal.MARGINAL: "marginal ones"}
        yield (
            f"policy {policy.name} counts {asked.value} intensities and those given are "
            f"{kinds[given]}: annual means count"
        )
        return
    allowed = [o.pool for o in seen.offers if policy.limits.rejection_reason(o.pool) is None]
    found = forecast_carbon(seen, policy, allowed, until)
    if not isinstance(seen.carbon, CarbonHistory):
        yield from seen.carbon.notes(seen.now)
    if found.missing:
        total = len(found.missing) + len(found.series)
        reasons = [f"{region}: {why}" for region, why in sorted(found.missing.items())]
        more = (
            f"; and {len(reasons) - MAX_REGIONS_NAMED} more"
            if len(reasons) > MAX_REGIONS_NAMED
            else ""
        )
        yield (
            f"no carbon forecast for {len(reasons)} of {total} regions, where annual means count "
            f"({'; '.join(reasons[:MAX_REGIONS_NAMED])}{more})"
        )


def load_checked_policy(name: str) -> Policy:
    """The shipped policy of that name, or the one in that file. Raises SpecError."""
    from costopt.spec import load_policy

    return check_policy(name, load_policy(name))


def check_policy(name: str, policy: Policy) -> Policy:
    """``policy``, if its strategy exists and can keep its limits. Raises SpecError."""
    from costopt.strategies import check

    try:
        check(policy)
    except SpecError as error:
        raise SpecError(
            f"{name}: strategy: {error.message}", hint=error.hint, code=error.code
        ) from None
    return policy


def load_account(path: str | None) -> Account:
    """The account in that file, an unlimited one where none is named. Raises SpecFileError."""
    if path is None:
        return UNLIMITED
    from costopt.spec import load_account

    return load_account(path)
