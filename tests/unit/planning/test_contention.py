"""Which jobs of a request contend, and which are forecast alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from costopt.domain.account import UNLIMITED, Account, Quota, Tenant
from costopt.domain.job import Job
from costopt.domain.market import CapacityType
from costopt.domain.policy import Limits, Policy
from costopt.optimize.planner import prepare
from costopt.planning.forecast.contention import contending_groups
from costopt.planning.request import build_plan_request
from costopt.spec import load_job
from tests.unit.planning.test_forecast import JOB, market, quotes_of

ON_DEMAND = Quota("on-demand", capacity_type=CapacityType.ON_DEMAND, max_nodes=1)
ANYTHING = Quota("nodes", max_nodes=2)
OURS = {"a": "ours", "b": "ours", "c": "theirs"}


@pytest.mark.parametrize(
    ("account", "limits", "groups"),
    [
        pytest.param(UNLIMITED, Limits(), ["a", "b", "c"], id="nothing shared"),
        pytest.param(Account(quotas=(ON_DEMAND,)), Limits(), ["abc"], id="a quota for one"),
        pytest.param(Account(quotas=(ANYTHING,)), Limits(), ["abc"], id="a quota for two"),
        pytest.param(
            Account(quotas=(replace(ANYTHING, max_nodes=3),)), Limits(), ["a", "b", "c"], id="roomy"
        ),
        pytest.param(
            Account(quotas=(replace(ANYTHING, max_nodes=1, tenant="ours"),)),
            Limits(),
            ["ab", "c"],
            id="a quota of one tenant",
        ),
        pytest.param(UNLIMITED, Limits(max_nodes=2), ["abc"], id="a limit of the policy"),
        pytest.param(UNLIMITED, Limits(max_usd=2.0), ["abc"], id="a budget for less than two"),
        pytest.param(UNLIMITED, Limits(max_usd=20.0), ["a", "b", "c"], id="a budget for all"),
        pytest.param(
            Account(tenants={"ours": Tenant("ours", max_usd=1.5)}),
            Limits(),
            ["ab", "c"],
            id="of a tenant",
        ),
    ],
)
def test_jobs_contend_for_what_is_too_small_for_their_largest_gangs(
    account: Account, limits: Limits, groups: list[str], tmp_path: Path
) -> None:
    _, seen = quotes_of(market(), tmp_path)
    jobs: list[Job] = []
    for name, tenant in OURS.items():
        (tmp_path / name).write_text(JOB.replace("counted", name).replace("saves", name))
        jobs.append(replace(load_job(tmp_path / name, seen.now), tenant=tenant))
    request = build_plan_request(jobs, Policy("p", limits=limits), seen, account)
    found = contending_groups(request, prepare(request)[0])
    assert ["".join(part.demand.job.name for part in group) for group in found] == groups
