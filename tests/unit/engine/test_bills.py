"""What jobs cost: the on-demand baseline, the account's terms, and bills of ended nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costopt.backtesting.account_market import account_market
from costopt.backtesting.backtest import hindsight_policy
from costopt.backtesting.hindsight import hindsight_optimum
from costopt.backtesting.replay import ReplayResult, replay
from costopt.backtesting.trial import BacktestConfig, Trial, Window
from costopt.domain.account import Account
from costopt.domain.account_price import CommitmentKind
from costopt.domain.commitments import Commitment, Discount, PoolPattern
from costopt.domain.errors import ProviderUnavailableError
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.events import JobSubmitted, NodeBilled, NodeLaunched, PriceChanged
from costopt.domain.fleet import LaunchRequest, Node, NodeBill
from costopt.domain.history import MarketHistory, PoolHistory
from costopt.domain.job import Phase
from costopt.domain.market import CapacityType
from costopt.domain.period import Period
from costopt.domain.policy import Limits
from costopt.domain.price_terms import PriceTerms
from costopt.domain.view import JobView, Target, View
from costopt.ledger.summary import JobState
from costopt.provider.base import Capability
from costopt.strategies.gang_options import GangOption, gang_options
from tests.support.cant_be_late import NoHazard
from tests.support.engine_fixtures import (
    BIG_SAFE,
    HOUR_S,
    SAFE,
    SPOT_A,
    FaultyCloud,
    Follow,
    Machines,
    Powers,
    Scene,
    always,
    rules,
    task,
)
from tests.support.market_fixtures import T0, market, pool_history


class Billing(FaultyCloud):
    """A cloud that charges a dollar per hour, and fails or does not know at first."""

    asked: list[str]
    answers: list[NodeBill | ProviderUnavailableError | None]

    def capabilities(self) -> frozenset[Capability]:
        return frozenset({Capability.BILLS})

    def bill(self, node: Node) -> NodeBill | None:
        self.asked.append(node.node_id)
        answer = (
            self.answers.pop(0)
            if self.answers
            else NodeBill(((node.launched_at, 1.0),), 0.0, "a dollar per hour")
        )
        if isinstance(answer, ProviderUnavailableError):
            raise answer
        return answer


def scene(*answers: NodeBill | ProviderUnavailableError | None) -> tuple[Scene, Billing]:
    made = Scene(always(SPOT_A, 4, 3.0), jobs=[task(work_s=3600.0)])
    cloud = made.cloud
    cloud.__class__ = Billing
    assert isinstance(cloud, Billing)
    cloud.asked, cloud.answers = [], list(answers)
    made.restart()
    return made, cloud


def test_the_bill_replaces_the_estimate() -> None:
    made, cloud = scene()
    made.finish()
    (billed,) = made.events(NodeBilled)
    (interval,) = made.engine.journal.accounts["job"].intervals(made.clock.now())
    assert interval.ended_at is not None
    run_s = (interval.ended_at - interval.launched_at).total_seconds()
    assert interval.usd_micros == int(run_s / 3600 * 1_000_000)
    assert made.summary().usd_micros == interval.usd_micros
    assert billed.source == "a dollar per hour"
    assert len(cloud.asked) == 1


def test_a_bill_that_is_not_there_yet_is_asked_for_again_after_a_while() -> None:
    made, cloud = scene(ProviderUnavailableError("later"), None)
    made.finish()
    assert made.events(NodeBilled) == []
    made.go(540)
    assert len(cloud.asked) == 1
    made.go(1200)
    assert len(cloud.asked) == 3
    assert len(made.events(NodeBilled)) == 1
    made.go(1200)
    assert len(cloud.asked) == 3


def test_a_restarted_controller_asks_for_what_it_lacks_and_no_more() -> None:
    made, cloud = scene(None)
    made.finish()
    made.restart().tick()
    assert len(made.events(NodeBilled)) == 1
    made.restart().tick()
    assert len(cloud.asked) == 2


def _submitted(scene: Scene) -> JobSubmitted:
    scene.tick()
    (submitted,) = scene.events(JobSubmitted)
    return submitted


def test_the_baseline_s_figures() -> None:
    """4 h of work, 7 saves before the last, at 8 $/h; 100 s of start-up at 0.5 kW."""
    job = _submitted(Scene(always(SPOT_A, 1, 2.0), always(SAFE, 9, 8.0), jobs=[task()]))
    busy_s = 4 * HOUR_S * (1 + 10 / 1800) + 10
    assert job.baseline_pool == str(SAFE)
    assert job.baseline_usd_micros == round(8.0 * (100 + busy_s) / 3600 * 1e6)
    assert job.baseline_wh == pytest.approx((0.5 * 100 + busy_s) / 3.6)
    assert job.baseline_wh is not None
    assert job.baseline_gco2e == pytest.approx(400 * job.baseline_wh / 1000)


def test_spot_is_not_weighed_for_the_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    weighed: list[CapacityType] = []

    def note(view: View, job_view: JobView) -> tuple[GangOption, ...]:
        weighed.extend(offer.pool.capacity_type for offer in view.offers)
        return gang_options(view, job_view)

    monkeypatch.setattr("costopt.engine.view_builder.gang_options", note)
    submitted = _submitted(Scene(always(SPOT_A, 1, 2.0), always(SAFE, 9, 8.0), jobs=[task()]))
    assert submitted.baseline_pool == str(SAFE)
    assert set(weighed) == {CapacityType.ON_DEMAND}


def test_a_more_expensive_gang_where_the_cheapest_is_too_slow() -> None:
    scene = Scene(
        always(SAFE, 9, 8.0), always(BIG_SAFE, 9, 36.0), jobs=[task(deadline_s=3 * HOUR_S)]
    )
    assert _submitted(scene).baseline_pool == str(BIG_SAFE)


def test_phases_are_priced_at_the_nodes_they_take() -> None:
    phases = (Phase("wide", 0.5, 4, 4), Phase("narrow", 0.5, 1, 1))
    job = replace(task(save_s=0, nodes=(1, 4)), phases=phases)
    submitted = _submitted(Scene(always(SAFE, 9, 8.0), jobs=[job]))
    assert submitted.baseline_usd_micros is not None
    node_hours = 2.0 + 2.0
    usd = submitted.baseline_usd_micros / 1e6
    assert 8.0 * node_hours < usd < 8.0 * (node_hours + 4 * 400 / 3600)


@pytest.mark.parametrize(
    ("histories", "price", "pool"),
    [
        ([always(SPOT_A, 1, 2.0)], None, None),
        ([always(SPOT_A, 1, 2.0), always(SAFE, 9, 8.0)], None, str(SAFE)),
        ([always(SPOT_A, 1, 2.0), always(SAFE, 9, 8.0)], 0.0, None),
    ],
    ids=["no on-demand", "a policy without on-demand", "an impossible price"],
)
def test_the_baseline_needs_on_demand_and_a_price_and_no_permission(
    histories: list[PoolHistory], price: float | None, pool: str | None
) -> None:
    limits = Limits(capacity_types=(CapacityType.SPOT,))
    scene = Scene(*histories, jobs=[task()], policy=rules("greedy_spot", limits=limits))
    if price is not None:
        scene.cloud.quoted_prices = {SAFE: Estimate.exact(price, Basis.MEASURED, "broken")}
    submitted = _submitted(scene)
    assert submitted.baseline_pool == pool
    assert (submitted.baseline_usd_micros is None) is (pool is None)
    assert (submitted.baseline_wh is None) is (pool is None)


AWS = PoolPattern("aws")


PLAN = Commitment(
    "sp",
    CommitmentKind.SAVINGS_PLAN,
    AWS,
    usd_per_hour=10.0,
    rates={("", "p3.2xlarge"): 6.0},
)


EDP = Discount("edp", AWS, 25.0)


def _market() -> MarketHistory:
    return market(
        pool_history(SPOT_A, [(0, 0, 2.0)], 400 * HOUR_S),
        pool_history(SAFE, [(0, 9, 8.0)], 400 * HOUR_S),
    )


def _run(terms: PriceTerms, **changes: object) -> ReplayResult:
    job = replace(task(deadline_s=10 * HOUR_S), **changes)  # type: ignore[arg-type]
    return replay(
        job,
        rules("on_demand"),
        _market(),
        machines=Machines(),
        powers=Powers(),
        hazards=NoHazard(),
        account=Account(price_terms=terms),
    )


def _micros(run: ReplayResult) -> tuple[int, int, int | None]:
    summary = run.summary
    return summary.usd_micros, summary.list_usd_micros, summary.committed_usd_micros


def test_a_discount_is_booked_beside_the_list_price() -> None:
    plain = _micros(_run(PriceTerms()))
    assert plain == (plain[0], plain[0], 0)
    spent, listed, _ = _micros(_run(PriceTerms(discounts=(EDP,))))
    assert spent == pytest.approx(listed * 0.75, abs=2)
    assert listed == plain[0] > 0


def test_a_commitment_is_used_first_and_adds_nothing() -> None:
    run = _run(PriceTerms(commitments=(PLAN,)))
    spent, listed, committed = _micros(run)
    assert spent == 0
    assert committed == pytest.approx(listed * 6 / 8, abs=2)
    (launched,) = [e.event for e in run.events if isinstance(e.event, NodeLaunched)]
    assert launched.pool == str(SAFE.committed_to("sp"))
    assert (launched.list_micros_per_hour, launched.commitment) == (8_000_000, PLAN.kind)
    assert run.summary.on_time is True


def test_prices_change_with_the_calendar_while_a_node_runs() -> None:
    dated = replace(EDP, period=Period(last_day=T0.date()))
    long = task(work_s=30 * HOUR_S, deadline_s=40 * HOUR_S)
    run = _run(PriceTerms(discounts=(dated,)), work=long.work, deadline_at=long.deadline_at)
    changes = [e.event for e in run.events if isinstance(e.event, PriceChanged)]
    assert [change.micros_per_hour for change in changes] == [8_000_000]
    spent, listed, _ = _micros(run)
    assert spent == pytest.approx(listed - 24 * 2_000_000, rel=1e-3)


def test_the_optimum_in_hindsight_pays_the_account_s_prices() -> None:
    terms = PriceTerms(discounts=(EDP,), commitments=(PLAN,))
    job, policy = task(deadline_s=10 * HOUR_S), rules("on_demand")
    seen = account_market(replace(_market(), tick_s=600.0), terms)
    assert seen.pools[SAFE].states[0].price_usd_per_hour == 6.0
    assert seen.pools[SAFE.committed_to("sp")].states[0].nodes_available == 1
    found = hindsight_optimum(job, policy, seen, Machines())
    assert found is not None
    assert found.usd == 0.0


def test_the_report_shows_the_optimum_that_is_scored() -> None:
    record = replace(_market(), tick_s=600.0)
    account = Account(price_terms=PriceTerms(discounts=(EDP,)))
    config = BacktestConfig({record.name: record}, Machines(), Powers, NoHazard, account=account)
    trial = Trial(
        Window(record.name, task(deadline_s=10 * HOUR_S)), hindsight_policy(rules("on_demand"))
    )
    shown, scored = config.optimum(trial), config.score(trial)
    assert shown is not None
    assert scored.usd is not None
    assert shown.usd == shown.moments[-1].usd == scored.usd == pytest.approx(25.0)


def test_a_node_of_a_commitment_remains_one_after_a_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The provider knows it as an on-demand node, and the answer to its launch was lost."""
    covered = SAFE.committed_to("sp")
    scene = Scene(
        always(SAFE, 9, 8.0),
        jobs=[task(deadline_s=10 * HOUR_S)],
        strategy=Follow(Target(covered, 1)),
        account=Account(price_terms=PriceTerms(commitments=(PLAN,))),
    )

    def launch_unheard(request: LaunchRequest) -> tuple[Node, ...]:
        scene.cloud.requests.append(request)
        scene.cloud.inner.launch(request)
        raise ProviderUnavailableError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(scene.cloud, "launch", launch_unheard)
        scene.tick()
    scene.restart()
    scene.tick()
    (launched,) = scene.events(NodeLaunched)
    assert (launched.pool, launched.micros_per_hour) == (str(covered), 0)
    scene.finish()
    assert {request.pool for request in scene.cloud.requests} == {SAFE}
    assert len({request.key for request in scene.cloud.requests}) == 1
    assert scene.summary().usd_micros == 0
    assert scene.summary().state is JobState.FINISHED


def test_two_jobs_do_not_launch_one_commitment_twice() -> None:
    covered = SAFE.committed_to("sp")
    scene = Scene(
        always(SAFE, 9, 8.0),
        jobs=[task(name="a", deadline_s=10 * HOUR_S), task(name="b", deadline_s=10 * HOUR_S)],
        strategy=Follow(Target(covered, 1)),
        account=Account(price_terms=PriceTerms(commitments=(PLAN,))),
    )
    scene.go(600.0)
    assert len(scene.living("a")) + len(scene.living("b")) == 1
