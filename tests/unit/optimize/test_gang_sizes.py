"""Which gang sizes are compared: few configurations, however large gangs may be."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costopt.domain.account import Quota, Tenant
from costopt.domain.fleet import Node, NodeState
from costopt.domain.gang_sizes import EVERY_SIZE, STEPS_PER_DOUBLING, ladder
from costopt.domain.job import Job, Phase, Resources
from costopt.domain.market import Pool
from costopt.domain.plan import PlanStatus
from costopt.domain.policy import Limits, Policy
from costopt.domain.progress import Progress
from costopt.domain.view import JobView
from costopt.optimize.planner import plan
from costopt.optimize.request import PlanRequest
from costopt.strategies.gang_options import gang_options
from tests.support.engine_fixtures import SPOT_A, task
from tests.support.optimize_fixtures import (
    NOW,
    UNHURRIED_S,
    configuration_table,
    job,
    machine,
    machines_of,
    offer,
    plan_request,
    pool,
)
from tests.support.strategy_fixtures import build_view
from tests.support.strategy_fixtures import offer as seen_offer

ZONES = tuple(pool(zone) for zone in "abc")
MANY = 10_000


def request_of(
    wanted: Job,
    *quotas: Quota,
    gpus: int = 8,
    nodes: tuple[Node, ...] = (),
    limits: Limits | None = None,
    tenants: tuple[Tenant, ...] = (),
) -> PlanRequest:
    offers = [offer(zone, 10.0 + n, hazard=0.01) for n, zone in enumerate(ZONES)]
    return plan_request(
        offers,
        JobView(wanted, Progress(), nodes),
        policy=Policy("cheap", limits=limits or Limits()),
        machines=machines_of(offers, machine(gpus=gpus)),
        quotas=quotas,
        tenants={tenant.name: tenant for tenant in tenants},
    )


def sizes_of(request: PlanRequest) -> set[int]:
    return set(configuration_table(request).nodes.tolist())


def wide(most: int = MANY, *, work_h: float = 10.0) -> Job:
    return job(work_h, resources=Resources(max_nodes=most), efficiency=0.97)


@given(
    st.integers(1, 2_000),
    st.integers(0, 20_000),
    st.lists(st.integers(1, 30_000), max_size=5),
)
def test_a_ladder_is_short_and_misses_no_size_by_much(
    fewest: int, more: int, also: list[int]
) -> None:
    allowed = range(fewest, fewest + more + 1)
    sizes = ladder(allowed, also)
    assert list(sizes) == sorted(set(sizes))
    assert set(sizes) <= set(allowed)
    assert {allowed[0], allowed[-1]} | {n for n in also if n in allowed} <= set(sizes)
    assert {n for n in allowed if n <= EVERY_SIZE} <= set(sizes)
    for one, following in pairwise(sizes):
        assert following == one + 1 or following <= one * (1 + 1 / STEPS_PER_DOUBLING)
    doublings = math.ceil(math.log2(max(1.0, allowed[-1] / EVERY_SIZE)))
    assert len(sizes) <= EVERY_SIZE + STEPS_PER_DOUBLING * doublings + 2 + len(also)


@pytest.mark.parametrize(
    ("resources", "gpus", "expected"),
    [
        (Resources(min_nodes=2, max_nodes=4), 8, range(2, 5)),
        (Resources(max_nodes=MANY, min_gpus=12, max_gpus=36), 8, range(2, 5)),
        (Resources(max_nodes=MANY, max_gpus=4), 8, range(0)),
        (Resources(max_nodes=2, min_gpus=24), 8, range(0)),
    ],
)
def test_the_sizes_that_a_job_allows(resources: Resources, gpus: int, expected: range) -> None:
    assert list(resources.node_counts(machine(gpus=gpus))) == list(expected)


@pytest.mark.parametrize("limits", [Limits(), Limits(power_caps=True, max_zone_share=0.5)])
def test_ten_thousand_nodes_take_few_more_configurations_than_sixteen(limits: Limits) -> None:
    few = len(configuration_table(request_of(wide(EVERY_SIZE), limits=limits)))
    many = len(configuration_table(request_of(wide(), limits=limits)))
    assert few < many < 5 * few


def test_ten_thousand_nodes_take_few_more_options_at_a_tick_than_sixteen() -> None:
    few, many = (
        build_view(task(nodes=(1, most)), [seen_offer(SPOT_A, 2.0, None)])
        for most in (EVERY_SIZE, MANY)
    )
    assert len(gang_options(many, many.jobs[0])) < 5 * len(gang_options(few, few.jobs[0]))


def test_the_largest_gangs_of_limits_are_compared() -> None:
    quotas = (
        Quota("gpus", gpu_model="A100", max_gpus=101),
        Quota("vcpus", capacity_type=ZONES[0].capacity_type, max_vcpus=96 * 93),
        Quota("other cloud", provider="gcp", max_nodes=87),
    )
    sizes = sizes_of(request_of(wide(), *quotas, gpus=1, limits=Limits(max_nodes=99)))
    assert {93, 99, 101} & sizes == {93}
    assert {87, 89, 91} & sizes == set()
    assert max(sizes) == 93
    of_tenant = (Tenant("default", max_nodes=71), Tenant("other", max_nodes=57))
    sizes = sizes_of(request_of(wide(), tenants=of_tenant))
    assert max(sizes) == 71
    assert 57 not in sizes


def test_a_gang_that_lives_is_compared_at_its_own_size() -> None:
    assert 77 not in sizes_of(request_of(wide()))
    nodes = tuple(node_in(ZONES[0], number) for number in range(77))
    table = configuration_table(request_of(wide(), nodes=nodes))
    assert table.nodes[table.running].tolist() == [77]


def test_ends_of_phases_and_measured_sizes_are_compared() -> None:
    phases = (Phase("early", 0.5, 50, 70), Phase("late", 0.5, 1, 35))
    points = (("A100", 8, 1.0), ("A100", 8 * 37, 30.0), ("H100", 8 * 39, 60.0))
    wanted = replace(
        job(resources=Resources(max_nodes=128), points=points, efficiency=0.95), phases=phases
    )
    sizes = sizes_of(request_of(wanted))
    assert {35, 50, 70} <= sizes
    assert {36, 37, 48, 71} & sizes == set()
    sizes = sizes_of(request_of(replace(wanted, phases=(Phase("all", 1.0, 1, 128),))))
    assert 37 in sizes
    assert 39 not in sizes


@pytest.mark.parametrize("work_h", [100.0, 460.0, 900.0])
def test_a_ladder_costs_next_to_nothing(work_h: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against every size up to 128 nodes, at deadlines that ask for few and for many of them."""
    request = request_of(wide(128, work_h=work_h))
    short = plan(request, time_limit_s=UNHURRIED_S, explain=False)
    monkeypatch.setattr("costopt.domain.gang_sizes.EVERY_SIZE", 128)
    assert len(sizes_of(request)) == 128
    whole = plan(request, time_limit_s=UNHURRIED_S, explain=False)
    assert {short.status, whole.status} <= {PlanStatus.OPTIMAL, PlanStatus.FEASIBLE}
    assert short.objective_usd is not None
    assert whole.objective_usd is not None
    assert short.objective_usd <= whole.objective_usd * 1.005


def node_in(where: Pool, number: int) -> Node:
    name = f"n{number}"
    return Node(name, "me", "job", where, name, NodeState.RUNNING, NOW, 10.0)
