"""The cases of ``benchmarks.figures``: typed jobs on the shipped and on generated markets."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain, cycle, islice, product
from pathlib import Path

import costopt as co
from benchmarks.deadlines import REFERENCE, published_costs, replay_cases
from benchmarks.generated import JOB, SPEEDS, USD_PER_HOUR, build_job, generated_bench
from benchmarks.trials import Effort
from costopt.backtesting.backtest import shift_job, with_deadline
from costopt.backtesting.trial import Trial, Window
from costopt.domain.job import Job
from costopt.domain.plan import Forecast
from costopt.domain.policy import StrategySpec
from costopt.ledger.codec import encode
from costopt.market.generator import DEFAULT_START_AT, generate_market

HOUR_S = 3600.0
ANY_AGE_S = 1e9
LISTED_AT = datetime(2026, 11, 28, tzinfo=UTC)
MARKET = "sample"
BASE = """\
kind: job
version: 1
name: typed
work: {amount: 2.0e+9, unit: tokens}
deadline: 13h
resources: {gpu_models: [H100], min_gpus: 8, min_nodes: 1, max_nodes: 1}
throughput: {points: [{gpu: H100, gpus: 8, units_per_s: 5.5e+4}]}
checkpoint: {uri: saves, size_gib: 96, save: 90s, restore: 5m}
startup: 10m
"""
CHANGES: Mapping[str, Mapping[str, str]] = {
    "one node": {},
    "time to spare": {"deadline: 13h": "deadline: 40h"},
    "hardly in time": {"deadline: 13h": "deadline: 11h"},
    "gang of 4": {
        "min_gpus: 8, min_nodes: 1, max_nodes: 1": "min_gpus: 32, min_nodes: 4, max_nodes: 4",
        "gpus: 8, units_per_s: 5.5e+4": "gpus: 32, units_per_s: 2.0e+5",
        "amount: 2.0e+9": "amount: 7.0e+9",
    },
    "one to four nodes": {
        "max_nodes: 1": "max_nodes: 4",
        "points: [{gpu: H100, gpus: 8, units_per_s: 5.5e+4}]": (
            "points: [{gpu: H100, gpus: 8, units_per_s: 5.5e+4}], scaling_efficiency: 0.9"
        ),
    },
    "three GPU models": {
        "[H100]": "[A100, H100, H200]",
        "points: [{gpu: H100, gpus: 8, units_per_s: 5.5e+4}]": (
            "flops_per_unit: 4.8e+10, mfu: {value: 0.38, gpu: H100, gpus: 8}"
        ),
        "deadline: 13h": "deadline: 30h",
    },
    "saves slowly": {
        "save: 90s, restore: 5m": "save: 8m, restore: 20m",
        "deadline: 13h": "deadline: 20h",
    },
    "starts slowly": {"startup: 10m": "startup: 45m", "deadline: 13h": "deadline: 16h"},
    "two phases": {
        "startup: 10m": "startup: 10m\n"
        "phases: [{name: first, share: 0.3}, {name: second, share: 0.7}]"
    },
    "with a budget": {"startup: 10m": "startup: 10m\nbudget: {usd: 900}"},
}
POLICIES = ("cheapest", "balanced", "greenest", "deadline-first", "on-demand")

Cases = Iterator[tuple[str, Mapping[str, object]]]


def _job(folder: Path, name: str, now: datetime) -> Job:
    text = BASE
    for old, new in CHANGES[name].items():
        assert old in text, (name, old)
        text = text.replace(old, new)
    path = folder / "job.yaml"
    path.write_text(text)
    return co.load_job(path, now=now)


def _of_forecast(forecast: Forecast | None, job: Job) -> dict[str, object]:
    """Return what a forecast says. Instants are hours from the job's start."""
    if forecast is None:
        return {"forecast": None}
    return {
        "usd": forecast.usd_mean,
        "P50 usd": forecast.usd_p50,
        "P95 usd": forecast.usd_p95,
        "kWh": forecast.kwh,
        "gCO2e": forecast.gco2e,
        "P50 finish h": (forecast.finish_p50_at - job.start_at).total_seconds() / HOUR_S,
        "P95 finish h": (forecast.finish_p95_at - job.start_at).total_seconds() / HOUR_S,
        "on time": forecast.on_time.value,
        "falls back": forecast.falls_back.value,
    }


def plans(folder: Path) -> Cases:
    """Yield twenty plans: of each job on the sample market, and on price lists; of each policy."""
    market = co.read_market(MARKET)
    asked = chain(
        ((name, "cheapest", market) for name in CHANGES),
        (("one node", policy, market) for policy in POLICIES[1:]),
        ((name, "cheapest", None) for name in islice(CHANGES, 6)),
    )
    for name, policy, prices in asked:
        now = prices.first_priced_at if prices else LISTED_AT
        job = _job(folder, name, now)
        age_s = None if prices else ANY_AGE_S
        made = co.plan(job, policy, market=prices, at=now, max_age_s=age_s)
        yield (
            f"{name}, {policy}, {MARKET if prices else 'price lists'}",
            {
                "status": made.plan.status.value,
                **_of_forecast(made.forecast, job),
                "allocations": [f"{a.nodes} × {a.pool}" for a in made.allocations],
                "candidates": len(made.candidates),
                "rejections": len(made.rejections),
            },
        )


def what_ifs(folder: Path) -> Cases:
    """Yield ten what-ifs: of each job two deadlines under a policy, with and without spot."""
    market = co.read_market(MARKET)
    for name, policy in zip(CHANGES, cycle(POLICIES)):
        job = _job(folder, name, market.first_priced_at)
        assert job.deadline_at is not None
        span_s = (job.deadline_at - job.start_at).total_seconds()
        found = co.what_if(
            job,
            policy,
            deadlines=(span_s, 1.5 * span_s),
            capacity=("policy", "spot"),
            points=0,
            market=market,
        )
        yield (
            f"{name}, {policy}",
            {
                f"{each.terms}, {index // 2}, {label}": value
                for index, each in enumerate(found.scenarios)
                for label, value in _of_forecast(each.forecast, job).items()
            },
        )


def backtests(folder: Path) -> Cases:
    """Yield five backtests on the sample market."""
    market = co.read_market(MARKET)
    for name, policy in zip(islice(CHANGES, 5), POLICIES, strict=True):
        job = _job(folder, name, market.first_priced_at)
        found = co.backtest(job, policy, market, starts=3, regret=True)
        yield (
            f"{name}, {policy}",
            {
                f"{each.policy}, {label}": value
                for each in found.summaries
                for label, value in (
                    ("usd", each.mean_usd),
                    ("kWh", each.kwh),
                    ("gCO2e", each.gco2e),
                    ("finish s", each.finish_s),
                    ("misses", each.misses),
                    ("interruptions", each.interruptions),
                    ("lost s", each.lost_s),
                    ("regret usd", each.regret_usd),
                )
            },
        )


def runs(_: Path) -> Cases:
    """Yield ten runs on generated markets: sums, and the digest of all events as stored."""
    kinds = product(("typical", "harsh", "scarce"), SPEEDS)
    strategies = ("adaptive", "uniform_progress", "greedy_spot", "milp")
    for number, ((profile, speeds), strategy) in enumerate(
        islice(zip(cycle(kinds), cycle(strategies)), 10)
    ):
        market = generate_market(
            USD_PER_HOUR, hours=72.0, seed=number, profile=profile, tick_s=300.0
        )
        due = with_deadline(build_job(speeds), HOUR_S * (7.0 if number % 2 else 14.0))
        policy = replace(co.load_policy("cheapest"), strategy=StrategySpec(strategy))
        window = Window(market.name, shift_job(due, DEFAULT_START_AT))
        run = generated_bench([market]).rehearse(Trial(window, policy))
        # Addresses of checkpoints are below the job's folder, wherever the clone is.
        lines = [encode(each.event).replace(str(JOB.parent), "job") for each in run.events]
        summary = run.summary
        yield (
            f"{number}: {profile}, {speeds}, {strategy}",
            {
                "events": len(lines),
                "digest": hashlib.sha256("\n".join(lines).encode()).hexdigest(),
                "micro-dollars": summary.usd_micros,
                "busy Wh": summary.busy_wh,
                "idle Wh": summary.idle_wh,
                "gCO2e": summary.gco2e,
                "interruptions": summary.interruptions,
                "on time": summary.on_time,
            },
        )


def published(_: Path) -> Cases:
    """Yield the costs of six cases of the "Can't Be Late" benchmark, ours and the published."""
    data = Path(os.environ["COSTOPT_DATA"])
    costs = published_costs(data / REFERENCE)
    cases = random.Random(0).sample(sorted(costs), 6)
    found, _late = replay_cases(data, cases, Effort(jobs=1))
    for case in cases:
        name = f"{case.trace}, {case.start_tick}, {case.deadline_h:g} h, {case.overhead_h:g} h"
        yield name, {**dict(sorted(found[case].items())), "bound": costs[case]["OMNISCIENT"]}
