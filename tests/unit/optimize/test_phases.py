"""Phases with a speed of their own, evaluations and pauses."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from costopt.domain.job import Job, Phase, Resources
from costopt.domain.market import CapacityType
from costopt.domain.plan import Candidate
from costopt.domain.policy import Policy, Risk
from costopt.domain.progress import Progress
from costopt.domain.throughput import Throughput, ThroughputSample
from costopt.domain.view import JobView
from costopt.optimize.candidates import ReferencePlan, judge_candidates
from costopt.optimize.configurations import ConfigurationTable
from costopt.optimize.demand import Demand, remaining_demand
from costopt.optimize.enumerate import TableEnumerator
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.pruning import single_held_h, single_work_units, stage_configurations
from costopt.optimize.rates import base_units
from costopt.optimize.request import PlanRequest
from tests.support.optimize_fixtures import NOW, job, machine, offer, plan_request, pool

A100, H100 = pool("a", name="a100"), pool("b", name="h100")


def points(**by_model: float) -> Throughput:
    return Throughput(tuple(ThroughputSample(model, 8, speed) for model, speed in by_model.items()))


SLOW_START = (
    Phase("warm-up", 0.25, 1, 1, throughput=points(A100=0.5, H100=1.0)),
    Phase("main", 0.75, 1, 1),
)


def job_of(*phases: Phase, **by_model: float) -> Job:
    one = job(resources=Resources(max_nodes=4))
    return replace(
        one, phases=phases, throughput=points(**(by_model or {"A100": 1.0, "H100": 3.0}))
    )


def demand_at(one: Job, done_units: float = 0.0) -> Demand:
    progress = Progress(done_units=done_units, saved_units=done_units)
    found = remaining_demand(JobView(one, progress), NOW, 0.0)
    assert found is not None
    return found


def request_of(one: Job) -> PlanRequest:
    on_demand = pool("a", name="a100", kind=CapacityType.ON_DEMAND)
    offers = (offer(A100, 10.0), offer(H100, 30.0), offer(on_demand, 40.0))
    models = {"a100": machine("A100-SXM4-40GB", name="a100"), "h100": machine("H100", name="h100")}
    machines = {o.pool: models[o.pool.instance_type] for o in offers}
    policy = Policy("cheap", risk=Risk(0.95, 0.0))
    return plan_request(offers, one, policy=policy, machines=machines)


def table_of(one: Job) -> tuple[ConfigurationTable, dict[str, int]]:
    table, _ = TableEnumerator(request_of(one)).table(demand_at(one))
    rows = {table.parts(row)[0][0].instance_type: row for row in reversed(range(len(table)))}
    return table, rows


def candidates(one: Job) -> dict[str, Candidate]:
    request, demand = request_of(one), demand_at(one)
    table, _ = TableEnumerator(request).table(demand)
    part = PlannedJob(demand, table, [])
    found = judge_candidates(request, part, ReferencePlan(part, (), 0.0, None))
    return {c.pool.instance_type: c for c in found}


def test_phases_that_differ_only_by_name_are_one_stage() -> None:
    one = job_of(Phase("a", 0.5, 1, 2), Phase("b", 0.25, 1, 2), Phase("c", 0.25, 1, 2))
    (stage,) = demand_at(one).stages
    assert (stage.name, stage.units, stage.may_pause) == ("a, b, c", 36000.0, True)


@pytest.mark.parametrize(
    "second",
    [
        Phase("b", 0.5, 1, 3),
        Phase("b", 0.5, 1, 2, may_pause=False),
        Phase("b", 0.5, 1, 2, throughput=points(A100=2.0)),
        Phase("b", 0.5, 1, 2, evaluate_every=100.0, evaluation_s=60.0),
    ],
)
def test_phases_that_differ_in_more_stay_apart(second: Phase) -> None:
    assert len(demand_at(job_of(Phase("a", 0.5, 1, 2), second)).stages) == 2


def test_phases_that_may_not_pause_stay_apart() -> None:
    phases = [Phase(name, 0.5, 1, 2, may_pause=False) for name in "ab"]
    stages = demand_at(job_of(*phases)).stages
    assert [stage.may_pause for stage in stages] == [False, False]


def test_a_phase_with_work_done_is_begun() -> None:
    one = job_of(*SLOW_START)
    assert [s.begun for s in demand_at(one).stages] == [False, False]
    assert [s.begun for s in demand_at(one, 100.0).stages] == [True, False]
    assert [s.begun for s in demand_at(one, 9000.0).stages] == [False]


def test_the_pace_is_the_phase_s_speed_over_the_job_s() -> None:
    table, rows = table_of(job_of(*SLOW_START))
    assert table.speed[[rows["a100"], rows["h100"]]] == pytest.approx([1.0, 3.0])
    assert table.pace[:, rows["a100"]] == pytest.approx([0.5, 1.0])
    assert table.pace[:, rows["h100"]] == pytest.approx([1 / 3, 1.0])


def test_evaluations_slow_a_fast_gang_more() -> None:
    table, rows = table_of(job_of(Phase("a", 1.0, 1, 1, evaluate_every=300.0, evaluation_s=100.0)))
    assert table.pace[0, rows["a100"]] == pytest.approx(300 / 400)
    assert table.pace[0, rows["h100"]] == pytest.approx(100 / 200)


def test_the_whole_job_takes_the_sum_of_its_stages() -> None:
    one = job_of(*SLOW_START)
    table, rows = table_of(one)
    demand = demand_at(one)
    hours = single_work_units(table, demand) / table.speed / 3600
    assert hours[rows["a100"]] == pytest.approx(9000 / 0.5 / 3600 + 27000 / 3600)
    assert hours[rows["h100"]] == pytest.approx(9000 / 1.0 / 3600 + 27000 / 3 / 3600)
    assert candidates(one)["h100"].speed.value == pytest.approx(1.0)


def test_a_phase_that_knows_nothing_of_a_machine_cannot_run_there() -> None:
    one = job_of(Phase("a", 0.5, 1, 1, throughput=points(H100=3.0)), Phase("b", 0.5, 1, 1))
    table, rows = table_of(one)
    demand = demand_at(one)
    assert table.pace[:, rows["a100"]].tolist() == [0.0, 1.0]
    assert single_held_h(table, demand)[rows["a100"]] == math.inf
    assert {(o.stage, o.row) for o in stage_configurations(table, demand)} >= {(1, rows["a100"])}
    assert (0, rows["a100"]) not in {(o.stage, o.row) for o in stage_configurations(table, demand)}


def test_a_candidate_that_cannot_do_a_phase_says_so() -> None:
    one = job_of(
        Phase("a", 0.5, 1, 1, throughput=points(H100=3.0)),
        Phase("b", 0.5, 1, 1, throughput=points(A100=1.0)),
    )
    refused = candidates(one)["h100"].rejection
    assert refused is not None
    assert (refused.code, refused.reason) == (
        "throughput_unknown", "the speed of phase b on it is unknown",
    )  # fmt: skip


def test_a_machine_that_no_stage_knows_is_out() -> None:
    phases = [Phase(n, 0.5, 1, 1, throughput=points(H100=s)) for n, s in (("a", 3.0), ("b", 2.0))]
    request = request_of(job_of(*phases))
    table, rejections = TableEnumerator(request).table(demand_at(request.jobs[0].job))
    assert {o.instance_type for row in range(len(table)) for o, _ in table.parts(row)} == {"h100"}
    assert {r.code for r in rejections} == {"throughput_unknown"}


def test_a_machine_that_only_a_phase_that_is_over_knows_is_out() -> None:
    one = job_of(
        Phase("a", 0.5, 1, 1, throughput=points(H100=3.0)), Phase("b", 0.5, 1, 1), A100=1.0
    )
    table, rejections = TableEnumerator(request_of(one)).table(demand_at(one, 18000.0))
    assert {o.instance_type for row in range(len(table)) for o, _ in table.parts(row)} == {"a100"}
    assert [(r.pool, r.code) for r in rejections] == [(H100, "throughput_unknown")]


def test_a_phase_may_know_a_machine_that_the_job_does_not() -> None:
    one = job_of(Phase("a", 1.0, 1, 1, throughput=points(H100=3.0)), A100=1.0)
    table, rows = table_of(one)
    assert list(rows) == ["h100"]
    assert table.speed[rows["h100"]] * table.pace[0, rows["h100"]] == pytest.approx(3.0)


def test_a_measured_gang_is_as_fast_in_its_phase_as_its_nodes_report() -> None:
    one = job_of(*SLOW_START)
    request = request_of(one)
    demand = replace(demand_at(one), running={A100: 1}, measured_units_per_s=0.4)
    table, _ = TableEnumerator(request).table(demand)
    (row,) = np.flatnonzero(table.running)
    assert table.speed[row] * table.pace[0, row] == pytest.approx(0.4)
    assert table.speed[row] * table.pace[1, row] == pytest.approx(0.8)


def test_base_units_count_each_stage_at_its_pace() -> None:
    pace = np.array([[1.0, 0.5, 0.0], [1.0, 2.0, 1.0]])
    assert base_units(np.array([10.0, 20.0]), pace).tolist() == [30.0, 30.0, math.inf]
