"""Jobs that share a quota on safe capacity: the shield lets them have it one after the other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costopt.domain.account import Account, Quota
from costopt.domain.market import CapacityType
from costopt.domain.view import View
from costopt.strategies.shield import SHIELD, ShieldedStrategy
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, task
from tests.support.strategy_fixtures import TICK_S, Wants, build_view, offer

OFFERS = [offer(SPOT_A, 2.0), offer(SAFE, 8.0)]
NEEDED_S = 150 + 4 * HOUR_S * (1 + 10 / 1800) + 10 + TICK_S
"""Start, 4 h of work with their saves, the last save, and a tick until the next one starts."""
ANY = Quota("all", max_nodes=1)


def _three(deadline_s: float, *quotas: Quota, tenants: tuple[str, ...] = ("t", "t", "t")) -> View:
    jobs = [
        build_view(
            replace(task(deadline_s=deadline_s, name=f"job-{n}"), tenant=tenant), OFFERS
        ).jobs[0]
        for n, tenant in enumerate(tenants)
    ]
    view = build_view(task(), OFFERS)
    return replace(view, jobs=tuple(jobs), account=Account(quotas))


def _shielded(view: View) -> int:
    decisions = ShieldedStrategy(Wants()).decide(view).decisions
    return sum(decision.rule == SHIELD for decision in decisions)


@pytest.mark.parametrize(("spare_s", "count"), [(1, 0), (-1, 1)])
def test_the_first_of_three_starts_while_the_others_still_can(spare_s: float, count: int) -> None:
    assert _shielded(_three(3 * NEEDED_S + spare_s, ANY)) == count


@pytest.mark.parametrize(
    "quota",
    [
        Quota("none", max_nodes=3),
        Quota("spot", capacity_type=CapacityType.SPOT, max_nodes=1),
        Quota("elsewhere", region="eu-west-1", max_nodes=1),
        Quota("of others", tenant="other", max_nodes=1),
    ],
    ids=lambda quota: quota.name,
)
def test_a_quota_with_room_for_all_changes_no_deadline(quota: Quota) -> None:
    assert _shielded(_three(2 * NEEDED_S, quota)) == 0


def test_what_cannot_all_be_in_time_starts_at_once() -> None:
    assert _shielded(_three(2 * NEEDED_S, ANY)) >= 1


def test_a_tenants_quota_binds_its_own_jobs_alone() -> None:
    quota = Quota("of t", tenant="t", max_nodes=1)
    view = _three(2 * NEEDED_S - 1, quota, tenants=("t", "t", "other"))
    decisions = ShieldedStrategy(Wants()).decide(view).decisions
    assert [d.rule for d in decisions[:2]].count(SHIELD) == 1
    assert decisions[2].rule is None
