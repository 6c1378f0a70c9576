"""Jobs that share limits: planned together, and decided alone at the prices of the plan."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from costopt.domain.account import Account, Quota
from costopt.domain.events import PlanMade
from costopt.domain.policy import Limits
from costopt.domain.view import JobView, View
from costopt.optimize.slot_costs import time_weighted_means
from costopt.render.table import Table
from costopt.strategies.adaptive.strategy import AdaptiveStrategy
from costopt.strategies.shared_limits import SharedLimits
from costopt.views.planned import planned_table
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, Scene, always, rules, task
from tests.support.market_fixtures import after
from tests.support.strategy_fixtures import build_view, offer

ONE_NODE = Account(quotas=(Quota("one", max_nodes=1),))
TIGHT, LOOSE = task(deadline_s=6 * HOUR_S, name="tight"), task(deadline_s=10 * HOUR_S, name="loose")


def _view(account: Account, limits: Limits | None = None) -> View:
    """Two jobs of 4 h each, of which one has 2 h to spare and the other 6."""
    view = build_view(TIGHT, [offer(SPOT_A, 2.0), offer(SAFE, 8.0)])
    jobs = (view.jobs[0], JobView(LOOSE, view.jobs[0].progress))
    policy = replace(view.policy, limits=limits or Limits())
    return replace(view, jobs=jobs, account=account, policy=policy)


def test_to_wait_costs_less_where_others_need_the_quota() -> None:
    together, alone = AdaptiveStrategy(prices_limits=True), AdaptiveStrategy()
    priced = {d.job: d.wait_usd for d in together.decide(_view(ONE_NODE)).decisions}
    free = {d.job: d.wait_usd for d in alone.decide(_view(ONE_NODE)).decisions}
    assert priced["loose"] is not None
    assert free["loose"] is not None
    assert priced["loose"] < free["loose"]
    assert priced["tight"] == pytest.approx(free["tight"], rel=0.1)


@pytest.mark.parametrize(
    ("account", "limits"),
    [
        (Account(), None),
        (Account(quotas=(Quota("two", max_nodes=2),)), None),
        (Account(quotas=(Quota("elsewhere", max_nodes=1, region="eu-west-1"),)), None),
        (Account(), Limits(max_usd=80.0)),
    ],
)
def test_jobs_that_do_not_compete_are_not_planned(account: Account, limits: Limits | None) -> None:
    view, shared = _view(account, limits), SharedLimits()
    shared.observe(view)
    assert shared.priced(view, "tight") is view
    assert shared.plan_of("tight") is None


@pytest.mark.parametrize(
    ("account", "limits", "name"),
    [
        (ONE_NODE, None, "quota one (nodes)"),
        (Account(), Limits(max_kw=1.0), "max_kw (kW)"),
        (Account(), Limits(max_usd_per_hour=8.0), "max_usd_per_hour ($/h)"),
    ],
)
def test_the_limit_that_is_short_has_a_price(
    account: Account, limits: Limits | None, name: str
) -> None:
    view, shared = _view(account, limits), SharedLimits()
    shared.observe(view)
    plan = shared.plan_of("loose")
    assert plan is not None
    prices = dict(plan.prices)
    assert max(prices[name]) > 0
    assert len(plan.usd_micros) == len(plan.wh) == len(prices[name])
    assert shared.priced(view, "loose").limit_prices[SPOT_A].value(view.now) > 0


def test_a_plan_holds_for_an_hour_and_for_the_same_jobs() -> None:
    view, shared = _view(ONE_NODE), SharedLimits()
    shared.observe(view)
    first = shared.plan_of("tight")
    shared.observe(replace(view, now=after(60.0)))
    assert shared.plan_of("tight") is first
    shared.observe(replace(view, now=after(120.0), jobs=view.jobs[:1]))
    assert shared.plan_of("tight") is None


def test_the_mean_over_an_empty_span_is_the_value_there() -> None:
    view, shared = _view(ONE_NODE), SharedLimits()
    shared.observe(view)
    series = shared.priced(view, "loose").limit_prices[SPOT_A]
    later = view.now + timedelta(minutes=10)
    spans = [(view.now, view.now), (view.now, later)]
    assert time_weighted_means(series, spans)[0] == series.value(view.now)


def _total(table: Table, name: str) -> int:
    return sum(value for row in table.rows if isinstance(value := row[name], int))


@pytest.mark.slow
def test_plans_are_recorded_when_they_change_and_compared_with_what_was_spent() -> None:
    scene = Scene(
        always(SPOT_A, 9, 2.0), always(SAFE, 9, 8.0), jobs=[TIGHT, LOOSE],
        policy=rules("adaptive", prices_limits=True), account=ONE_NODE, tick_s=600.0,
    )  # fmt: skip
    scene.finish()
    made = scene.events(PlanMade, "tight")
    assert made
    assert all(a.from_at < b.from_at for a, b in pairwise(made))
    for job in ("tight", "loose"):
        summary, account = scene.summary(job), scene.engine.journal.accounts[job]
        events = [each.event for each in scene.ledger.events(job)]
        now = scene.clock.now()
        table = planned_table(events, account.curves(now).spend, now)
        assert _total(table, "spent_micros") == summary.usd_micros > 0
        assert _total(table, "planned_micros") > 0
        assert summary.on_time
