"""Five jobs under one quota: at its prices, by what waiting costs each, and decided one by one.

Each job is 4.2 hours of work on two nodes of T4 in three zones of one region and takes twenty
minutes for a launch; the jobs are due in 7, 9, 11, 13 and 15 hours, in another order on each of 20
generated markets. The quota allows four or six nodes at a time, of spot or of any capacity.
"By waiting" is ``adaptive``, "at prices" the same with ``prices_limits``, and "one by one" without
what waiting costs: jobs that run stay, then in order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from statistics import fmean

import costopt as co
from benchmarks.generated import TICK_S, USD_PER_HOUR, build_job
from costopt.catalog import load_catalog
from costopt.controller.controller import Controller, ControllerSettings, build_strategy
from costopt.controller.forecasts import CatalogModels
from costopt.controller.virtual_site import virtual_site
from costopt.domain.account import Account, AccountGuards, Quota
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
from costopt.domain.market import CapacityType
from costopt.domain.policy import Policy
from costopt.domain.view import Desired, View
from costopt.engine.loop import run_until_done
from costopt.engine.settings import deterministic_key
from costopt.ledger.base import MemoryLedger
from costopt.market.generator import DEFAULT_START_AT, generate_market
from costopt.strategies.adaptive.strategy import AdaptiveStrategy
from costopt.strategies.shield import ShieldedStrategy

MARKETS = 20
DEADLINES_H = (7.0, 9.0, 11.0, 13.0, 15.0)
QUOTAS = (
    Quota("spot", capacity_type=CapacityType.SPOT, max_nodes=4),
    Quota("spot", capacity_type=CapacityType.SPOT, max_nodes=6),
    Quota("all", max_nodes=4),
    Quota("all", max_nodes=6),
)
BUDGET_USD = 26.0
"""Of the account, for all five jobs: what they cost on demand alone is some $24."""

Figure = tuple[str, float, str]


class OneByOne(AdaptiveStrategy):
    """``adaptive`` that does not say what waiting costs."""

    def decide(self, view: View) -> Desired:
        """Return the decisions of ``adaptive``."""
        decisions = super().decide(view).decisions
        return Desired(tuple(replace(decision, wait_usd=None) for decision in decisions))


WAYS: dict[str, Callable[[], AdaptiveStrategy]] = {
    "at prices": lambda: AdaptiveStrategy(prices_limits=True),
    "by waiting": AdaptiveStrategy,
    "one by one": OneByOne,
}


def run(markets: int | None = None) -> Iterator[Figure]:
    """Yield, quota by quota, mean dollars of the five jobs, and how many were late."""
    policy = co.load_policy("cheapest")
    for quota in (*QUOTAS, None):
        limit = "no quota" if quota is None else f"{quota.max_nodes} nodes, {quota.name}"
        for way, make in WAYS.items():
            what = f"{limit}, {way}"
            runs = [_run(policy, make, quota, seed) for seed in range(markets or MARKETS)]
            yield f"{what}: dollars", fmean(usd for usd, _ in runs), "$"
            yield f"{what}: late", sum(late for _, late in runs), "jobs"


def _run(
    policy: Policy, make: Callable[[], AdaptiveStrategy], quota: Quota | None, seed: int
) -> tuple[float, int]:
    """Return dollars and late jobs on one market."""
    catalog = load_catalog()
    models = CatalogModels(catalog, None, False)
    site = virtual_site(
        _market(seed),
        DEFAULT_START_AT,
        machines=catalog,
        powers=models.powers(),
        hazards=models.hazards(),
        notice_s=120.0,
    )
    guards = AccountGuards(max_usd=BUDGET_USD)
    account = Account(quotas=() if quota is None else (quota,), guards=guards)
    settings = ControllerSettings(tick_s=TICK_S, account=account, new_key=deterministic_key)
    controller = Controller(site, MemoryLedger(), settings)
    strategy = build_strategy(policy, lambda: ShieldedStrategy(make()))
    for job in _jobs(seed):
        controller.add(job, policy, strategy)
    run_until_done(controller.engine)
    now = site.clock.now()
    accounts = controller.engine.journal.accounts.values()
    summaries = [account.summary(now) for account in accounts]
    return sum(s.usd for s in summaries), sum(s.on_time is not True for s in summaries)


def _market(seed: int) -> MarketHistory:
    prices = {pool: usd for pool, usd in USD_PER_HOUR.items() if "g4dn" in pool.instance_type}
    return generate_market(prices, hours=48.0, seed=seed, profile="typical", tick_s=TICK_S)


def _jobs(seed: int) -> Iterator[Job]:
    hours = list(DEADLINES_H)
    random.Random(seed).shuffle(hours)
    for index, deadline_h in enumerate(hours):
        yield replace(
            build_job("one GPU model"),
            name=f"job-{index}",
            start_at=DEFAULT_START_AT,
            deadline_at=DEFAULT_START_AT + timedelta(hours=deadline_h),
        )
