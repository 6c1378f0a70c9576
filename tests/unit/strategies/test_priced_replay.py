"""The strategy `priced` in the engine gives, tick by tick, the sizes of the replay of arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from costopt.backtesting.fleet.policies import FleetTrial
from costopt.backtesting.fleet.replay import FleetReplay, ReplaySettings
from costopt.domain.account import Tenant
from costopt.domain.view import CapacityPlan
from costopt.engine.engine import TickResult
from costopt.engine.loop import run_until_done
from costopt.optimize.rounds.gangs import Ints
from costopt.optimize.rounds.jobs import RoundJobs
from costopt.optimize.rounds.priced import PricedPolicy
from costopt.workload.workload import Workload
from tests.support.owned_cluster import (
    RESTART_S,
    START_AT,
    cluster_controller,
    cluster_of,
    cluster_site,
    job_of,
    made_workload,
    owner,
)

NODES = 4
WEIGHTS = {"speech": 1.0, "vision": 1.0}
Sizes = dict[float, dict[str, int]]


class RecordedReplay(FleetReplay):
    """Notes the GPUs of each job after every round, and whenever one is submitted."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.sizes: Sizes = {}

    def _resize(self, jobs: RoundJobs, sizes: Ints) -> bool:
        is_settled = super()._resize(jobs, sizes)
        names = [self._work.jobs[job].job_id for job in self._active]
        held = dict(zip(names, map(int, self._held[self._active]), strict=True))
        self.sizes[self._now_s] = {name: gpus for name, gpus in held.items() if gpus}
        return is_settled


def _replayed(workload: Workload) -> tuple[Sizes, dict[str, float]]:
    cluster = replace(
        cluster_of(owner(NODES)), partition_gpus=dict.fromkeys(WEIGHTS, NODES * 8 // len(WEIGHTS))
    )
    settings = ReplaySettings(restart_s=RESTART_S, every_round=True)
    trial = FleetTrial(workload, workload.window(START_AT, 1)[1], cluster, 1.0, settings=settings)
    replay = RecordedReplay(
        workload,
        trial.before,
        trial._table(rigid=False),
        cluster.node_gpus,
        PricedPolicy(RESTART_S),
        settings,
        trial.partitions,
    )
    done = replay.run()
    return replay.sizes, {j.job_id: e for j, e in zip(workload.jobs, done.end_s, strict=True)}


def _in_engine(workload: Workload) -> tuple[Sizes, dict[str, float]]:
    account = owner(NODES, [Tenant(name, weight) for name, weight in WEIGHTS.items()])
    site = cluster_site(account)
    controller = cluster_controller(site, account, map(job_of, workload.jobs))
    sizes: Sizes = {}

    def note(result: TickResult) -> None:
        plans = ((each.job, each.plan) for each in result.desired.decisions)
        at_s = (result.now - START_AT).total_seconds()
        sizes[at_s] = {
            job: plan.gpus for job, plan in plans if isinstance(plan, CapacityPlan) and plan.gpus
        }

    run_until_done(controller.engine, note)
    accounts = controller.engine.journal.accounts
    ends = {name: account.finished_at for name, account in accounts.items()}
    return sizes, {name: (at - START_AT).total_seconds() for name, at in ends.items() if at}


@pytest.mark.slow
def test_the_engine_and_the_replay_decide_alike() -> None:
    workload = made_workload(80, seed=1, hours=1.6, tenants={"speech": 2.0, "vision": 1.0})
    expected, ends = _replayed(workload)
    found, finished = _in_engine(workload)
    for at_s, sizes in expected.items():
        assert found.get(at_s, {}) == sizes, f"at {at_s:g} s"
    assert finished == pytest.approx(ends)
