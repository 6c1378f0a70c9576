"""costopt.plan, frontier and what_if: results, prices and refused arguments."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import costopt as co
from costopt.domain.account import Tenant
from tests.support.errors import has_code
from tests.support.market_fixtures import ON_DEMAND, SPOT, T0, pool_history
from tests.support.market_fixtures import market as market_of

JOB = Path(__file__).parents[3] / "examples/finetune/job.yaml"
AT = datetime(2026, 8, 1, tzinfo=UTC)
TRAIN = """\
name: train
work: {amount: 360000, unit: samples}
deadline: 8h
resources: {gpu_models: [V100], min_nodes: 1, max_nodes: 1}
throughput: {points: [{gpu: V100, units_per_s: 30}]}
checkpoint: {uri: checkpoints, size_gib: 1, save: 60s, restore: 60s, interval: 30m}
startup: 60s
"""


@pytest.fixture(scope="module")
def market() -> co.Market:
    pools = (
        pool_history(SPOT, [(0, 4, 1.0)], 48 * 3600),
        pool_history(ON_DEMAND, [(0, 99, 3.0)], 48 * 3600),
    )
    return co.Market(market_of(*pools, tick_s=600.0))


@pytest.fixture
def job(tmp_path: Path) -> co.Job:
    path = tmp_path / "job.yaml"
    path.write_text(TRAIN)
    return co.load_job(path, now=T0)


def test_a_plan_on_list_prices_as_of_an_instant() -> None:
    made = co.plan(co.load_job(JOB, now=AT), at=AT)
    assert made.is_feasible
    assert made.plan.made_at == AT
    assert made.allocations
    assert any(each.chosen for each in made.candidates)
    assert made.forecast is not None
    assert made.forecast.usd_p50 > 0
    assert any("list prices" in note for note in made.notes)


def test_a_plan_counts_root_volumes_of_the_account_s_size(
    market: co.Market, job: co.Job, tmp_path: Path
) -> None:
    account = tmp_path / "account.yaml"
    account.write_text(
        f"providers: {{{SPOT.provider}: {{regions: [{SPOT.region}], root_gib: 2000}}}}\n"
    )
    plans = [
        co.plan(job, "cheapest", market=market, account=each)
        for each in (None, co.load_account(account))
    ]
    usd = [each.forecast.usd_p50 for each in plans if each.forecast is not None]
    facts: list[Any] = [each.table().facts["storage"] for each in plans]
    stored = [each["usd"] for each in facts]
    assert stored[0] > 0
    assert stored[1] == pytest.approx(10 * stored[0], rel=0.1)
    assert usd[1] - usd[0] == pytest.approx(stored[1] - stored[0], rel=0.1)


def test_a_plan_on_a_market(market: co.Market, job: co.Job) -> None:
    made = co.plan(job, "cheapest", market=market)
    assert {str(each.pool) for each in made.allocations} == {str(SPOT)}
    assert made.plan.made_at == market.first_priced_at
    assert co.plan(job, co.load_policy("on-demand"), market=market).allocations[0].pool == ON_DEMAND


def test_an_impossible_deadline_is_a_result(market: co.Market, job: co.Job) -> None:
    late = co.what_if(job, "cheapest", deadlines=[600.0], market=market, points=0)
    (scenario,) = late.scenarios
    assert scenario.forecast is None
    assert scenario.why_not
    made = co.plan(scenario.job, market=market)
    assert not made.is_feasible
    assert made.plan.binding
    assert made.forecast is None


def test_prices_that_are_too_old_carry_the_notes(market: co.Market, job: co.Job) -> None:
    with pytest.raises(co.StaleDataError) as caught:
        co.plan(job, market=market, at=T0 + timedelta(days=30))
    assert any(market.name in note for note in caught.value.__notes__)


def test_scenarios_and_the_frontier_of_the_first_policy(market: co.Market, job: co.Job) -> None:
    found = co.what_if(
        job, ["cheapest", "on-demand"], capacity=["spot", "policy"], points=4, market=market
    )
    assert [(each.policy.name, each.terms) for each in found.scenarios] == [
        ("cheapest", "spot"),
        ("cheapest", "policy"),
        ("on-demand", "spot"),
        ("on-demand", "policy"),
    ]
    alone = co.frontier(job, "cheapest", points=4, market=market)
    assert alone.points == found.frontier.points
    assert alone.points
    assert alone.plan is not None
    assert found.frontier.plan is not None
    assert found.frontier.plan.allocations == alone.plan.allocations


REFUSED: list[tuple[str, Callable[[co.Job, co.Market], Any]]] = [
    ("job", lambda job, market: co.plan(3)),  # type: ignore[arg-type]
    ("source", lambda job, market: co.load_job(3)),  # type: ignore[arg-type]
    ("policy", lambda job, market: co.plan(job, 3)),  # type: ignore[arg-type]
    ("policies", lambda job, market: co.what_if(job, [])),
    ("policy", lambda job, market: co.what_if(job, None)),  # type: ignore[arg-type]
    ("at", lambda job, market: co.plan(job, at=datetime(2026, 8, 1))),  # noqa: DTZ001
    ("at", lambda job, market: co.plan(job, at="2026-08-01")),  # type: ignore[arg-type]
    ("now", lambda job, market: co.load_job(JOB, now=datetime(2026, 8, 1))),  # noqa: DTZ001
    ("market", lambda job, market: co.plan(job, market=3)),  # type: ignore[arg-type]
    ("account", lambda job, market: co.plan(job, account=3)),  # type: ignore[arg-type]
    ("provider", lambda job, market: co.plan(job, provider=[1])),  # type: ignore[list-item]
    ("region", lambda job, market: co.plan(job, region=3)),  # type: ignore[arg-type]
    ("at", lambda job, market: co.plan(job, market="live", at=datetime.now(UTC))),
    ("max_age_s", lambda job, market: co.plan(job, market="live", max_age_s=60.0)),
    ("gpus", lambda job, market: co.load_job(JOB, gpus="8xH10")),
    ("gpus", lambda job, market: co.plan(job, gpus="8xH100")),
    ("gpus", lambda job, market: co.load_job(JOB, gpus=8)),  # type: ignore[arg-type]
    ("capacity", lambda job, market: co.plan(job, capacity="spt")),  # type: ignore[arg-type]
    ("points", lambda job, market: co.frontier(job, points=0)),
    ("points", lambda job, market: co.frontier(job, points=2.5)),  # type: ignore[arg-type]
    ("capacity", lambda job, market: co.what_if(job, "cheapest", capacity="spt")),  # type: ignore[arg-type]
    ("capacity", lambda job, market: co.what_if(job, "cheapest", capacity=[])),
    ("deadlines", lambda job, market: co.what_if(job, "cheapest", deadlines=[-1.0])),
    ("deadlines", lambda job, market: co.what_if(job, "cheapest", deadlines=[float("nan")])),
    ("deadlines", lambda job, market: co.what_if(job, "cheapest", deadlines="24")),
    ("deadlines", lambda job, market: co.plan(job, deadlines=["13h", "24h"])),
]


@pytest.mark.parametrize(("argument", "call"), REFUSED)
def test_a_bad_argument_is_named_with_a_hint(
    argument: str, call: Callable[[co.Job, co.Market], Any], job: co.Job, market: co.Market
) -> None:
    with pytest.raises(co.SpecError, check=has_code("bad_argument", argument)) as caught:
        call(job, market)
    assert caught.value.hint


def test_what_cannot_be_read(job: co.Job, tmp_path: Path) -> None:
    with pytest.raises(co.MarketError, check=has_code("missing")):
        co.read_market(tmp_path / "missing.parquet")
    with pytest.raises(co.SpecError, check=has_code("unknown_name", "cheapst")):
        co.plan(job, "cheapst")
    with pytest.raises(co.SpecError):
        co.load_job(tmp_path / "missing.yaml")
    with pytest.raises(co.SpecError):
        co.load_account(tmp_path / "missing.yaml")
    with pytest.raises(co.SignalError):
        co.plan(job, at=T0, carbon=tmp_path / "missing.parquet")


def test_a_job_of_no_tenant_is_refused(job: co.Job) -> None:
    shared = co.Account(tenants={"vision": Tenant("vision")})
    with pytest.raises(co.SpecError, check=has_code("bad_argument", "job")):
        co.plan(job, account=shared)
