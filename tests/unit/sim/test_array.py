"""Arrays on virtual nodes: each node takes tasks alone."""

from __future__ import annotations

from dataclasses import replace

from costopt.domain.array import TaskArray, TaskOutcome
from costopt.domain.job import Job, Resources, WorkAmount, WorkUnit
from costopt.domain.progress import GangState
from tests.support.market_fixtures import (
    ON_DEMAND,
    SPOT,
    Sim,
    after,
    market,
    pool_history,
    training_job,
)

TASK_S = 100.0


def array(tasks: int) -> Job:
    """Tasks of 100 s on one GPU, after a start-up of 100 s."""
    job = training_job(float(tasks))
    (point,) = job.throughput.points
    point = replace(point, gpus=1, units_per_s=1 / TASK_S)
    return replace(
        job,
        work=WorkAmount(float(tasks), WorkUnit.TASKS),
        resources=Resources(max_nodes=4, useful_gpus=tasks),
        throughput=replace(job.throughput, points=(point,), independent_gpus=tasks),
        array=TaskArray(tasks),
    )


def world(drop_s: float, *, notice_s: float = 0.0) -> Sim:
    """Three spot nodes until ``drop_s``, then one."""
    return Sim(
        market(
            pool_history(SPOT, [(0, 3, 1.0), (drop_s, 1, 1.0)], 2e6),
            pool_history(ON_DEMAND, [(0, 99, 3.0)], 2e6),
        ),
        notice_s,
    )


def test_a_lost_node_costs_only_its_own_tasks() -> None:
    sim, job = world(250.0), array(9)
    runtime, nodes = sim.provider.runtime, sim.launch(3)
    runtime.form_gang(job, 1, nodes, 0.0)
    assert runtime.progress(job, sim.go(50)).state is GangState.STARTING
    working = runtime.progress(job, sim.go(199))
    assert (working.state, round(working.done_units, 9), len(working.busy_nodes)) == (
        GangState.TRAINING, 2.97, 3,
    )  # fmt: skip
    assert working.measured_units_per_s == 3 / TASK_S
    assert runtime.progress(job, sim.go(200)).saved_units == 3
    lost = runtime.progress(job, sim.go(260))
    assert (lost.saved_units, lost.lost_units) == (3.0, 2 * 0.5)
    assert len(lost.busy_nodes) == 1
    assert runtime.progress(job, sim.go(801)).saved_units == 9
    assert runtime.progress(job, sim.go(801)).state is GangState.FINISHED
    records = runtime.settled_tasks(job)
    assert sorted(record.task for record in records) == list(range(9))
    assert sum(record.starts for record in records) == 11
    assert {record.outcome for record in records} == {TaskOutcome.DONE}
    assert max(record.ended_at for record in records) == after(800)


def test_a_drained_node_ends_its_task_and_takes_no_other() -> None:
    sim, job = world(1e6), array(9)
    runtime, nodes = sim.provider.runtime, sim.launch(3)
    runtime.form_gang(job, 1, nodes, 0.0)
    sim.go(150)
    leaving = nodes[0].node_id
    runtime.drain(job, [leaving])
    runtime.form_gang(job, 2, nodes[1:], 0.0)
    assert leaving not in runtime.is_drained(job)
    assert runtime.progress(job, sim.go(210)).saved_units == 3
    assert leaving in runtime.is_drained(job)
    assert leaving not in runtime.progress(job, sim.go(210)).busy_nodes


def test_a_node_with_a_notice_takes_no_task_that_it_could_not_end() -> None:
    sim, job = world(320.0, notice_s=60.0), array(9)
    runtime = sim.provider.runtime
    runtime.form_gang(job, 1, sim.launch(3), 0.0)
    assert runtime.progress(job, sim.go(270)).saved_units == 3
    assert runtime.progress(job, sim.go(330)).lost_units == 0.0
