"""Jobs are booked at what they add to the account's bill, beside list prices and commitments."""

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
from costopt.domain.events import NodeLaunched, PriceChanged
from costopt.domain.fleet import LaunchRequest, Node
from costopt.domain.history import MarketHistory
from costopt.domain.period import Period
from costopt.domain.price_terms import PriceTerms
from costopt.domain.view import Target
from costopt.ledger.summary import JobState
from tests.support.cant_be_late import NoHazard
from tests.support.engine_fixtures import (
    HOUR_S,
    SAFE,
    SPOT_A,
    Follow,
    Machines,
    Powers,
    Scene,
    always,
    rules,
    task,
)
from tests.support.market_fixtures import T0, market, pool_history

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
