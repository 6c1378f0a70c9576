"""The controller of a cluster dies at every write while gangs shrink and grow: nothing is lost."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from costopt.domain.events import Event, NodeEnded, NodeLaunched
from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.engine.loop import VirtualClock
from tests.faults.test_engine_crash import Crash, CrashingLedger, Fuse
from tests.support.exhaustive import crash_points
from tests.support.fleet_run import max_gpus_held
from tests.support.owned_cluster import (
    START_AT,
    cluster_controller,
    cluster_site,
    job_of,
    made_workload,
    owner,
)

ACCOUNT = owner(1)
NODE_GPUS = 8


def _jobs() -> list[Job]:
    """One that grows over the node, and others that come later and make it shrink."""
    recorded = made_workload(4, seed=3, hours=0.3, tenants={"a": 1.0}).jobs
    jobs = [
        job_of(
            replace(
                each, gpus=2, duration_s=900.0, speeds=((1, 0.55), (2, 1.0), (4, 1.6), (8, 2.5))
            )
        )
        for each in recorded
    ]
    return [
        replace(job, start_at=START_AT + timedelta(seconds=240.0 * index))
        for index, job in enumerate(jobs)
    ]


def _run(steps: int | None, *, durable: bool) -> tuple[list[Event], Fuse]:
    """Run to the end, restarting the controller whenever it dies."""
    fuse = Fuse(steps)
    ledger, site = CrashingLedger(fuse, durable), cluster_site(ACCOUNT)
    assert isinstance(site.clock, VirtualClock)
    for _ in range(5):
        try:
            engine = cluster_controller(site, ACCOUNT, _jobs(), ledger).engine
            while not engine.tick().is_done:
                site.clock.sleep(60.0)
        except Crash:
            continue
        nodes = site.providers[0].nodes("costopt")
        assert not any(node.state.is_alive for node in nodes), "an orphan"
        assert all(account.finished_at for account in engine.journal.accounts.values())
        return [each.event for each in ledger.events()], fuse
    raise AssertionError("the run never ended")


def _check(events: list[Event]) -> None:
    launched = [e.node_id for e in events if isinstance(e, NodeLaunched)]
    ended = [e.node_id for e in events if isinstance(e, NodeEnded)]
    assert len(set(launched)) == len(launched), "a node twice"
    assert sorted(ended) == sorted(launched), "a node that never ended"
    assert max(max_gpus_held(events, NODE_GPUS).values()) <= NODE_GPUS, "a GPU twice"


@pytest.mark.slow
@pytest.mark.parametrize("durable", [False, True], ids=["lost", "durable"])
def test_killed_at_every_write_while_gangs_shrink_and_grow(durable: bool) -> None:
    whole, _ = _run(None, durable=durable)
    sizes = {Pool.parse(e.pool).instance_type for e in whole if isinstance(e, NodeLaunched)}
    assert len(sizes) > 1, "no gang changed its size"
    for steps in crash_points(range(1, 1000)):
        events, fuse = _run(steps, durable=durable)
        _check(events)
        if not fuse.burnt:
            assert steps > 30
            return
    raise AssertionError("the run never outlasted the fuse")
