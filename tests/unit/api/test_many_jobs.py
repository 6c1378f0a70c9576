"""costopt.plan_jobs and what_if_jobs: shared limits, who pays for them, who is not served, why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

import costopt as co
from costopt.domain.account import Account, Quota, Tenant
from costopt.domain.market import CapacityType
from tests.support.errors import has_code
from tests.support.market_fixtures import ON_DEMAND, SPOT, T0, pool_history
from tests.support.market_fixtures import market as market_of

TRAIN = """\
name: NAME
work: {amount: 360000, unit: samples}
deadline: 8h
resources: {gpu_models: [V100], min_nodes: 1, max_nodes: 1}
throughput: {points: [{gpu: V100, units_per_s: 30}]}
checkpoint: {uri: checkpoints/NAME, size_gib: 1, save: 60s, restore: 60s, interval: 30m}
startup: 60s
"""
"""Three and a half hours of work: two after the other end in time, three do not."""

pytestmark = pytest.mark.usefixtures("unhurried")

MakeJobs = Callable[[int], tuple[co.Job, ...]]


@pytest.fixture(scope="module")
def market() -> co.Market:
    pools = (
        pool_history(SPOT, [(0, 4, 1.0)], 48 * 3600),
        pool_history(ON_DEMAND, [(0, 99, 3.0)], 48 * 3600),
    )
    return co.Market(market_of(*pools, tick_s=600.0))


@pytest.fixture
def jobs(tmp_path: Path) -> MakeJobs:
    def make(count: int) -> tuple[co.Job, ...]:
        found = []
        for number in range(count):
            path = tmp_path / f"j{number}.yaml"
            path.write_text(TRAIN.replace("NAME", f"j{number}"))
            found.append(co.load_job(path, now=T0))
        return tuple(found)

    return make


def one_spot_node(kind: CapacityType | None = CapacityType.SPOT) -> Account:
    return Account((Quota("one", capacity_type=kind, max_nodes=1),))


def test_jobs_that_share_no_limit_are_planned_as_alone(market: co.Market, jobs: MakeJobs) -> None:
    several = jobs(3)
    made = co.plan_jobs(several, market=market)
    alone = [co.plan(job, market=market).forecast for job in several]
    assert made.is_feasible
    assert [made.plan.forecast_of(job.name) for job in several] == alone


@pytest.mark.slow
def test_a_limit_names_who_holds_it_and_who_pays(market: co.Market, jobs: MakeJobs) -> None:
    several = jobs(3)
    made = co.plan_jobs(several, market=market, account=one_spot_node())
    assert made.is_feasible
    (limit,) = (each for each in made.limits if each.name.startswith("quota one"))
    assert limit.most == 1.0
    assert limit.slack == pytest.approx(0.0)
    assert limit.shadow_price is not None
    assert limit.shadow_price > 0
    on_spot = {each.job for each in made.plan.allocations if each.pool == SPOT}
    assert {use.job for use in limit.uses} == on_spot
    assert sum(use.paid_usd or 0.0 for use in limit.uses) > 0
    # A further node is worth no more than what its absence costs.
    free = co.plan_jobs(several, market=market)
    assert made.totals.usd is not None
    assert free.totals.usd is not None
    assert made.totals.usd > free.totals.usd + 1.0
    frame = made.to_frame("uses")
    assert set(frame[frame.limit == "quota one"].job) == on_spot
    assert list(made.to_frame().job) == [job.name for job in several]


@pytest.mark.slow
def test_who_is_not_served_is_named_with_why_and_what_would_help(
    market: co.Market, jobs: MakeJobs
) -> None:
    several, account = jobs(3), one_spot_node(None)
    made = co.plan_jobs(several, market=market, account=account)
    assert not made.is_feasible
    (late,) = made.unserved
    assert "quota one: needs 1 of 1 nodes" in late.why
    assert any(job.name in late.why for job in several if job.name != late.job)
    raised, later = late.remedies
    assert raised == "raise quota one from 1 to 2"
    assert later.startswith("a deadline of")
    # Both do help.
    more = replace(account, quotas=(replace(account.quotas[0], max_nodes=2),))
    assert co.plan_jobs(several, market=market, account=more).is_feasible
    hours = float(later.removeprefix("a deadline of ").removesuffix(" h"))
    due = [
        replace(job, deadline_at=T0 + timedelta(hours=hours)) if job.name == late.job else job
        for job in several
    ]
    assert co.plan_jobs(due, market=market, account=account).is_feasible


@pytest.mark.slow
def test_a_job_that_cannot_end_alone_keeps_no_other(market: co.Market, jobs: MakeJobs) -> None:
    first, second = jobs(2)
    hopeless = replace(second, deadline_at=T0 + timedelta(hours=3))
    made = co.plan_jobs([first, hopeless], market=market)
    (late,) = made.unserved
    assert late.job == second.name
    assert late.why.startswith("deadline: ")
    assert late.remedies
    beside, alone = made.plan.forecast_of(first.name), co.plan(first, market=market).forecast
    assert beside is not None
    assert alone is not None
    assert beside.usd_mean == pytest.approx(alone.usd_mean, rel=1e-4)


@pytest.mark.slow
def test_a_tenants_limit_binds_its_own_jobs(market: co.Market, jobs: MakeJobs) -> None:
    several = tuple(replace(job, tenant="small") for job in jobs(3))
    account = Account(tenants={"small": Tenant("small", max_nodes=1)})
    (late,) = co.plan_jobs(several, market=market, account=account).unserved
    assert late.remedies[0] == "raise quota of tenant small from 1 to 2"


@pytest.mark.slow
def test_what_if_gives_the_totals_of_each_policy_and_deadline(
    market: co.Market, jobs: MakeJobs
) -> None:
    made = co.what_if_jobs(
        jobs(3),
        ["cheapest", "on-demand"],
        deadlines=[8 * 3600, 16 * 3600],
        market=market,
        account=one_spot_node(None),
    )
    frame = made.to_frame()
    assert list(frame.served) == [2, 3, 2, 3]
    by_policy = frame[frame.served == 3].set_index("policy").usd
    assert by_policy["cheapest"] < by_policy["on-demand"]


def test_two_jobs_of_one_name_are_refused(market: co.Market, jobs: MakeJobs) -> None:
    (job,) = jobs(1)
    with pytest.raises(co.SpecError, match="2 of the jobs are named"):
        co.plan_jobs([job, job], market=market)
    with pytest.raises(co.SpecError, check=has_code("bad_argument", "jobs")):
        co.plan_jobs([], market=market)
