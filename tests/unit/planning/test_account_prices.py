"""Plans at an account's prices: what is committed is used first, once, and counted at what it
changes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from costopt.domain.account import Account
from costopt.domain.account_price import CommitmentKind
from costopt.domain.commitments import Commitment, Credit, Discount, PoolPattern
from costopt.domain.job import Job
from costopt.domain.market import CapacityType
from costopt.domain.plan import Plan
from costopt.domain.policy import Policy
from costopt.domain.price_terms import PriceTerms
from costopt.domain.progress import Progress
from costopt.domain.view import JobView, View
from costopt.optimize.planner import plan
from costopt.optimize.request import build_request
from costopt.optimize.segments import TOLERANCE
from costopt.planning.account_bill import bill_notes, planned_bill
from costopt.planning.quotes import QuoteSet
from tests.support.optimize_fixtures import NOW, job, machine, offer, pool, power

UNINTERRUPTIBLE = pool("a", kind=CapacityType.ON_DEMAND)
OTHER_ZONE = pool("b", kind=CapacityType.ON_DEMAND)
BIG = pool("a", kind=CapacityType.ON_DEMAND, name="gpu.huge")
AWS = PoolPattern("aws")
SOLVER_TOLERANCE = timedelta(hours=TOLERANCE)
OFFERS = (offer(UNINTERRUPTIBLE, 10.0), offer(OTHER_ZONE, 10.0), offer(BIG, 11.0))


def committed(usd: float = 20.0, rate: float = 7.0) -> Commitment:
    rates = {("", "gpu.large"): rate, ("", "gpu.huge"): 2 * rate}
    return Commitment("sp", CommitmentKind.SAVINGS_PLAN, AWS, usd_per_hour=usd, rates=rates)


def planned(jobs: list[Job], terms: PriceTerms) -> Plan:
    offers = terms.offers(OFFERS, (), NOW)
    pools = [each.pool for each in offers]
    view = View(
        now=NOW,
        tick_s=0.0,
        uninterruptible_s=0.0,
        jobs=tuple(JobView(each, Progress()) for each in jobs),
        offers=offers,
        machines={p: machine(name=p.instance_type) for p in pools},
        powers={p: power() for p in pools},
        policy=Policy("cheap"),
        account=Account(price_terms=terms),
    )
    return plan(build_request(view))


def used_at_most(made: Plan, commitment: Commitment) -> float:
    """The most of the commitment that the plan uses for longer than the solver's tolerance."""
    edges = [each.start_at + SOLVER_TOLERANCE for each in made.allocations]
    return max(
        sum(
            commitment.load(each.pool) * each.nodes
            for each in made.allocations
            if each.pool.commitment and each.start_at <= at < each.end_at
        )
        for at in edges
    )


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 4])
def test_jobs_together_use_at_most_the_commitment(count: int) -> None:
    jobs = [job(name=f"job-{number}", deadline_h=12.0) for number in range(count)]
    made = planned(jobs, PriceTerms(commitments=(committed(),)))
    assert {each.job for each in made.allocations} == {each.name for each in jobs}
    assert 0 < used_at_most(made, committed()) <= 20.0 + 1e-6
    paid = {each.job for each in made.allocations if not each.pool.commitment}
    assert bool(paid) == (count > 2)


@pytest.mark.slow
def test_a_plan_knows_what_it_changes_and_what_is_paid_anyhow() -> None:
    terms = PriceTerms(
        discounts=(Discount("edp", AWS, 10.0),),
        commitments=(committed(),),
        credits=(Credit("grant", "aws", 5.0),),
    )
    jobs = [job(name=f"job-{number}", deadline_h=12.0) for number in range(3)]
    made, account = planned(jobs, terms), Account(price_terms=terms)
    bill = planned_bill(made.allocations, terms.offers(OFFERS, (), NOW), account)
    assert bill is not None
    assert bill.list_usd is not None
    assert 0 < bill.added_usd < bill.list_usd
    (use,) = bill.commitments
    assert use.name == "sp"
    assert 0 < use.share <= 1
    assert bill.credited_usd == {"grant": 5.0}
    seen = QuoteSet(NOW, OFFERS, "a test")
    assert any("sp" in note for note in bill_notes(made.allocations, seen, account))


def test_a_commitment_that_ends_is_planned_on_until_then() -> None:
    terms = PriceTerms(commitments=(committed(),))
    (short, *_) = [o for o in terms.offers(OFFERS, (), NOW) if o.pool.commitment]
    dated = replace(short, until_at=NOW + timedelta(hours=2))
    assert dated.pool.uncommitted == UNINTERRUPTIBLE
    assert planned([job()], terms).objective_usd == 0.0


def test_what_no_terms_change_needs_no_bill() -> None:
    made = planned([job()], PriceTerms())
    assert planned_bill(made.allocations, OFFERS, Account()) is None
