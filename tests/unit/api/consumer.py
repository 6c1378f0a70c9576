"""What a user's typed program does with costopt; mypy checks it, and nothing runs it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import assert_type

import pandas

import costopt as co


class Greedy(co.Strategy):
    """Runs on the first offer."""

    def decide(self, view: co.View) -> co.Desired:
        """Return one decision per job."""
        offer: co.Offer = view.offers[0]
        pool: co.Pool = offer.pool
        jobs = [each.job.name for each in view.jobs]
        return co.Desired(tuple(co.Decision(j, (co.Target(pool, 1),), "first") for j in jobs))


def main(folder: Path) -> None:
    """Use every function and result."""
    now = datetime(2026, 8, 1, tzinfo=UTC)
    account: co.Account = co.load_account(folder / "account.yaml")
    job = assert_type(co.load_job(folder / "job.yaml", now=now, account=account), co.Job)
    policy = assert_type(co.load_policy("cheapest"), co.Policy)
    market = assert_type(co.read_market("market.parquet"), co.Market)
    made = assert_type(co.plan(job, policy, market=market, at=now), co.PlanResult)
    if made.forecast is not None:
        assert_type(made.forecast.usd_p50, float)
        assert_type(made.forecast.kwh, float | None)
    assert_type(made.to_frame("allocations"), pandas.DataFrame)
    compared = assert_type(
        co.what_if(job, ["cheapest", policy], capacity="spot", deadlines=[3600.0]),
        co.WhatIfResult,
    )
    assert_type(compared.frontier, co.FrontierResult)
    assert_type(co.frontier(job, points=8).plot(), co.Chart).save(folder / "frontier.svg")
    result = assert_type(
        co.backtest(job, "cheapest", [market], strategies={"mine": Greedy}, processes=None),
        co.BacktestResult,
    )
    assert_type([each.mean_usd for each in result.summaries], list[float | None])
    with co.LedgerReader(folder) as reader:
        run = assert_type(reader.job("train"), co.JobRun)
        assert_type(run.summary().usd, float)
    try:
        co.plan(job, "policy.yaml")
    except (co.SpecError, co.InfeasibleError) as error:
        assert_type(error.hint, str | None)
        assert_type(error.exit_code, int)
