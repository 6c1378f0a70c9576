"""Whatever jobs come, the engine's cluster gives no GPU twice and loses no work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from costopt.domain import events as ev
from costopt.domain.account import Account, Tenant
from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.engine.loop import run_until_done
from costopt.ledger.base import MemoryLedger
from tests.support.owned_cluster import (
    START_AT,
    cluster_controller,
    cluster_site,
    job_of,
    made_workload,
    owner,
)

NODES, NODE_GPUS = 2, 8
ALONE_S = 1800.0
TENANTS = ("speech", "vision")
ACCOUNT = owner(NODES, [Tenant(name, 1.0) for name in TENANTS])


def _run(account: Account, jobs: Sequence[Job]) -> list[ev.Event]:
    ledger = MemoryLedger()
    controller = cluster_controller(cluster_site(account), account, jobs, ledger)
    run_until_done(controller.engine)
    return [recorded.event for recorded in ledger.events()]


def _gpus(pool: str) -> int:
    part = Pool.parse(pool).instance_type.partition(":")[2]
    return int(part) if part else NODE_GPUS


def _jobs(seed: int, count: int) -> list[Job]:
    recorded = made_workload(count, seed, hours=0.5, tenants=dict.fromkeys(TENANTS, 1.0))
    return [job_of(job) for job in recorded.jobs if job.gpus <= NODES * NODE_GPUS]


@given(seed=st.integers(0, 10_000), count=st.integers(2, 8))
@settings(max_examples=5)
def test_gpus_and_work_are_kept_and_the_schedule_repeats(seed: int, count: int) -> None:
    jobs = _jobs(seed, count)
    events = _run(ACCOUNT, jobs)
    launched = {each.node_id: each for each in events if isinstance(each, ev.NodeLaunched)}
    ended = {each.node_id: each.ended_at for each in events if isinstance(each, ev.NodeEnded)}
    assert launched.keys() == ended.keys()

    changes: dict[str, list[tuple[datetime, int]]] = defaultdict(list)
    for node_id, node in launched.items():
        gpus, zone = _gpus(node.pool), str(Pool.parse(node.pool).zone)
        changes[zone] += [(node.launched_at, gpus), (ended[node_id], -gpus)]
    for each in changes.values():
        held = 0
        for _, gpus in sorted(each):
            held += gpus
            assert held <= NODE_GPUS, "a GPU twice"

    by_name = {job.name: job for job in jobs}
    for event in events:
        job = by_name[event.job]
        if isinstance(event, ev.GangFormed):
            size = sum(_gpus(launched[node_id].pool) for node_id in event.node_ids)
            assert job.resources.min_gpus is not None
            assert job.resources.max_gpus is not None
            assert job.resources.min_gpus <= size <= job.resources.max_gpus
        assert not isinstance(event, ev.WorkLost), "a resize saves before it stops"
    finished = {each.job: each.units for each in events if isinstance(each, ev.JobFinished)}
    assert finished == {job.name: job.work.amount for job in jobs}

    assert _run(ACCOUNT, jobs) == events


def _job(name: str, tenant: str, work_s: float, after_min: int) -> Job:
    """It asks for a node, and may have both."""
    (recorded,) = made_workload(1, 0, 0.0, {tenant: 1.0}).jobs
    shape = replace(
        recorded, job_id=name, gpus=8, smallest_gpus=8, largest_gpus=16, duration_s=work_s,
        speeds=((8, 1.0), (16, 1.7)),
    )  # fmt: skip
    return replace(job_of(shape), start_at=START_AT + timedelta(minutes=after_min))


@given(after_min=st.integers(1, 40))
@settings(max_examples=2)
def test_a_tenant_has_its_share_beside_one_that_asks_for_everything(after_min: int) -> None:
    asked = [_job(f"v{number:02}", "vision", 2400.0, 0) for number in range(5)]
    mine = _job("mine", "speech", ALONE_S, after_min)
    events = _run(ACCOUNT, [*asked, mine])
    (end,) = (e.at for e in events if isinstance(e, ev.JobFinished) and e.job == "mine")
    waited = end - mine.start_at - timedelta(seconds=ALONE_S)
    assert waited <= timedelta(minutes=10), "protected minutes, a restart and the rounds"
