"""No launch exceeds the account's quotas or its tenants' limits, whatever a strategy wants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costopt.backtesting.replay import replay
from costopt.domain.account import Account, Quota, Tenant
from costopt.domain.events import GuardTripped, LaunchIntended, RunStopped
from costopt.domain.job import Job
from costopt.domain.market import CapacityType, Pool
from costopt.domain.view import Target
from tests.support.engine_fixtures import (
    BIG_SAFE,
    HOUR_S,
    SAFE,
    SPOT_A,
    SPOT_B,
    Follow,
    Machines,
    Powers,
    Scene,
    SomeHazard,
    always,
    rules,
    task,
)
from tests.support.market_fixtures import market

POOLS = (SPOT_A, SPOT_B, SAFE, BIG_SAFE)


def _scene(account: Account, jobs: Sequence[Job], strategy: Follow) -> Scene:
    scene = Scene(
        *(always(pool, 20, 2.0) for pool in POOLS),
        jobs=jobs,
        strategy=strategy,
        policy=rules("greedy_spot"),
    )
    scene.settings = replace(scene.settings, account=account)
    scene.restart()
    return scene


def _one(quota: Quota, pool: Pool, nodes: int) -> Scene:
    scene = _scene(Account(quotas=(quota,)), [task(nodes=(1, 8))], Follow(Target(pool, nodes)))
    scene.go(180)
    return scene


@pytest.mark.parametrize(
    ("quota", "pool", "fits", "load"),
    [
        (Quota("q", max_nodes=2), SPOT_A, 2, "3 nodes"),
        (Quota("q", max_gpus=8), BIG_SAFE, 2, "12 GPUs"),
        (Quota("q", max_vcpus=64, families=("P",)), BIG_SAFE, 2, "96 vCPUs"),
        (Quota("q", max_usd_per_hour=4.0), SPOT_A, 2, "6 $/h"),
        (Quota("q", max_kw=2.0, region="us-east-1"), SPOT_A, 2, "3 kW"),
        (Quota("q", max_nodes=2, capacity_type=CapacityType.SPOT), SPOT_B, 2, "3 nodes"),
        (Quota("q", max_nodes=2, tenant="default"), SPOT_A, 2, "3 nodes"),
    ],
    ids=["nodes", "gpus", "vcpus", "usd", "kw", "spot", "tenant"],
)
def test_a_launch_over_a_quota_does_not_happen(
    quota: Quota, pool: Pool, fits: int, load: str
) -> None:
    assert len(_one(quota, pool, fits).living()) == fits
    scene = _one(quota, pool, fits + 1)
    assert not scene.living()
    assert not scene.events(LaunchIntended)
    (tripped,) = scene.events(GuardTripped)
    assert tripped.guard == "quota"
    assert "quota q allows" in tripped.message
    assert load in tripped.message


@pytest.mark.parametrize(
    "quota",
    [
        Quota("q", max_nodes=1, region="eu-west-1"),
        Quota("q", max_nodes=1, gpu_model="H100"),
        Quota("q", max_nodes=1, families=("g",)),
        Quota("q", max_nodes=1, capacity_type=CapacityType.ON_DEMAND),
        Quota("q", max_nodes=1, tenant="other"),
    ],
)
def test_a_quota_of_something_else_limits_nothing(quota: Quota) -> None:
    assert len(_one(quota, SPOT_A, 3).living()) == 3


def test_a_tenant_is_held_to_its_own_nodes() -> None:
    jobs = [
        replace(task(name=name, nodes=(1, 4)), tenant=tenant)
        for name, tenant in (("one", "vision"), ("two", "vision"), ("three", "speech"))
    ]
    account = Account(tenants={"vision": Tenant("vision", max_nodes=3)})
    scene = _scene(account, jobs, Follow(Target(SPOT_A, 2)))
    scene.go(180)
    assert [len(scene.living(job.name)) for job in jobs] == [2, 0, 2]
    (tripped,) = scene.events(GuardTripped, "two")
    assert "of tenant vision allows 3 nodes" in tripped.message


def test_a_tenant_that_has_spent_its_dollars_saves_and_stops() -> None:
    jobs = [replace(task(name=name), tenant="vision") for name in ("one", "two")]
    account = Account(tenants={"vision": Tenant("vision", max_usd=4.0)})
    scene = _scene(account, jobs, Follow(Target(SPOT_A, 1)))
    scene.finish()
    for name in ("one", "two"):
        assert [e.guard for e in scene.events(GuardTripped, name)] == ["tenant_max_usd"]
        assert len(scene.events(RunStopped, name)) == 1
        assert scene.summary(name).lost_units == 0
    spent = scene.summary("one").usd + scene.summary("two").usd
    assert 4.0 <= spent < 4.5


@pytest.mark.parametrize("strategy", ["greedy_spot", "milp"])
def test_a_replay_respects_the_account(strategy: str) -> None:
    account = Account(quotas=(Quota("spot", max_nodes=1, capacity_type=CapacityType.SPOT),))
    done = replay(
        task(2 * HOUR_S, nodes=(2, 2)),
        rules(strategy),
        market(always(SPOT_A, 4, 2.0), always(SAFE, 4, 8.0)),
        machines=Machines(),
        powers=Powers(),
        hazards=SomeHazard(),
        account=account,
    )
    assert done.summary.spot_usd_micros == 0
    assert done.summary.on_time


@settings(max_examples=25, deadline=None)
@given(
    requests=st.lists(
        st.dictionaries(
            st.sampled_from(("one", "two")),
            st.tuples(st.sampled_from(POOLS), st.integers(1, 6)),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_a_strategy_that_ignores_quotas_cannot_exceed_them(
    requests: list[dict[str, tuple[Pool, int]]],
) -> None:
    account = Account(
        quotas=(
            Quota("gpus", max_gpus=9),
            Quota("spot", max_nodes=4, capacity_type=CapacityType.SPOT),
            Quota("dollars", max_usd_per_hour=13.0),
        ),
        tenants={"b": Tenant("b", max_nodes=3)},
    )
    jobs = [
        replace(task(9 * HOUR_S, name=name, nodes=(1, 6)), tenant=tenant)
        for name, tenant in (("one", "a"), ("two", "b"))
    ]
    follow = Follow()
    scene = _scene(account, jobs, follow)
    for request in requests:
        follow.by_job = {job: (Target(pool, nodes),) for job, (pool, nodes) in request.items()}
        scene.go(240)
        living = {name: scene.pools(name) for name in ("one", "two")}
        everywhere = [*living["one"], *living["two"]]
        assert sum(4 if pool == BIG_SAFE else 1 for pool in everywhere) <= 9
        assert sum(pool.capacity_type is CapacityType.SPOT for pool in everywhere) <= 4
        assert 2.0 * len(everywhere) <= 13.0
        assert len(living["two"]) <= 3
