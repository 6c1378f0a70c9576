"""Quotas by family, vCPU, dollars and tenant, and what tenants may have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costopt.domain.account import Tenant
from costopt.domain.job import Job, Resources
from costopt.domain.plan import PlanStatus
from costopt.domain.policy import Limits, Policy
from costopt.domain.progress import Progress
from costopt.domain.view import JobView
from costopt.optimize.configurations import ConfigurationTable
from costopt.optimize.demand import Demand, remaining_demand
from costopt.optimize.enumerate import TableEnumerator
from costopt.optimize.limits import SharedLimit, TotalLimit, shared_limits, total_limits
from costopt.optimize.planner import plan
from costopt.optimize.request import PlanRequest, Quota
from tests.support.optimize_fixtures import NOW, job, machine, offer, plan_request, pool

P5, G6 = pool("a", name="p5.48xlarge"), pool("a", name="g6.48xlarge")


def job_of(tenant: str = "blue") -> Job:
    return replace(job(resources=Resources(max_nodes=4)), tenant=tenant)


def request_of(
    *quotas: Quota, tenants: tuple[Tenant, ...] = (), limits: Limits | None = None
) -> PlanRequest:
    return plan_request(
        (offer(P5, 10.0), offer(G6, 11.0)),
        job_of(),
        policy=Policy("cheap", limits=limits or Limits()),
        quotas=quotas,
        tenants={tenant.name: tenant for tenant in tenants},
    )


def table_of(request: PlanRequest, tenant: str = "blue") -> tuple[ConfigurationTable, Demand]:
    demand = remaining_demand(JobView(job_of(tenant), Progress()), NOW, 0.0)
    assert demand is not None
    return TableEnumerator(request).table(demand)[0], demand


def sizes(request: PlanRequest, tenant: str = "blue") -> dict[str, int]:
    """The largest gang of each instance type."""
    table, _ = table_of(request, tenant)
    found: dict[str, int] = {}
    for row in range(len(table)):
        ((where, nodes),) = table.parts(row)
        found[where.instance_type] = max(nodes, found.get(where.instance_type, 0))
    return found


def load_of(limit: SharedLimit, request: PlanRequest, nodes: int, tenant: str = "blue") -> float:
    """What a gang of P5 adds to the limit."""
    table, demand = table_of(replace(request, quotas=(), tenants={}), tenant)
    row = next(r for r in range(len(table)) if table.parts(r) == ((P5, nodes),))
    return limit.load(request, demand, table, row)


@pytest.mark.parametrize("families", [("p",), ("P",), ("p", "vt")])
def test_a_family_is_the_prefix_before_the_first_digit(families: tuple[str, ...]) -> None:
    quota = Quota("q", families=families, max_nodes=2)
    assert quota.matches(P5, machine())
    assert not quota.matches(G6, machine())
    assert not quota.matches(pool(name="pa1.3xlarge"), machine())
    assert sizes(request_of(quota)) == {"p5.48xlarge": 2, "g6.48xlarge": 4}


def test_no_family_means_every_one() -> None:
    assert sizes(request_of(Quota("q", max_nodes=2))) == {"p5.48xlarge": 2, "g6.48xlarge": 2}


@pytest.mark.parametrize(
    ("quota", "kind", "load"),
    [
        (Quota("q", max_vcpus=200), "vcpus", 192.0),
        (Quota("q", max_usd_per_hour=25.0), "usd_per_hour", 20.0),
        (Quota("q", max_gpus=16), "gpus", 16.0),
        (Quota("q", max_nodes=2), "nodes", 2.0),
    ],
)
def test_a_quota_bounds_a_gang_and_all_gangs_together(quota: Quota, kind: str, load: float) -> None:
    request = request_of(quota)
    assert sizes(request) == {"p5.48xlarge": 2, "g6.48xlarge": 2}
    (limit,) = shared_limits(request)
    assert (limit.name, limit.resource.key) == ("quota q", kind)
    assert load_of(limit, request, 2) == pytest.approx(load)
    assert load_of(replace(limit, quota=replace(quota, families=("g",))), request, 2) == 0


def test_a_tenant_s_quota_counts_only_its_jobs() -> None:
    request = request_of(Quota("q", tenant="blue", max_nodes=2))
    assert sizes(request, "blue")["p5.48xlarge"] == 2
    assert sizes(request, "red")["p5.48xlarge"] == 4
    (limit,) = shared_limits(request)
    assert load_of(limit, request, 3, "blue") == 3
    assert load_of(limit, request, 3, "red") == 0


def test_a_tenant_s_nodes_and_dollars_per_hour_are_limits_of_its_jobs() -> None:
    request = request_of(tenants=(Tenant("blue", max_nodes=3, max_usd_per_hour=20.0),))
    assert sizes(request, "blue") == {"p5.48xlarge": 2, "g6.48xlarge": 1}
    assert sizes(request, "red") == {"p5.48xlarge": 4, "g6.48xlarge": 4}
    limits = shared_limits(request)
    assert {(limit.resource.key, limit.most, limit.tenant) for limit in limits} == {
        ("nodes", 3, "blue"),
        ("usd_per_hour", 20.0, "blue"),
    }


def test_the_dollars_of_a_plan_are_limited_for_all_and_for_each_tenant() -> None:
    request = request_of(
        tenants=(Tenant("red", max_usd=7.0), Tenant("blue", max_usd=5.0), Tenant("grey")),
        limits=Limits(max_usd=100.0, max_usd_per_month=50.0),
    )
    everyone, blue, red = total_limits(request)
    assert everyone == TotalLimit("max_usd_per_month of the policy", 50.0)
    assert (blue.max_usd, blue.counts(job_of("blue")), blue.counts(job_of("red"))) == (
        5.0, True, False,
    )  # fmt: skip
    assert red.name == "max_usd of tenant red"
    assert everyone.counts(job_of("red"))
    assert total_limits(request_of()) == ()


def test_a_tenant_s_limit_that_leaves_nothing_is_named() -> None:
    made = plan(request_of(tenants=(Tenant("blue", max_usd_per_hour=5.0),)))
    assert made.status is PlanStatus.INFEASIBLE
    assert made.binding == "limit: the max_usd_per_hour of 5 of tenant blue"
