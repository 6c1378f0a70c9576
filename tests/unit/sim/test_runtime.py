"""The arithmetic of training on virtual nodes."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path

import pytest

from costopt.domain.errors import BadRequestError, CatalogError
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.domain.power import PowerCap
from costopt.domain.progress import GangState, Progress
from costopt.domain.runtime import PowerLimitRecord
from costopt.market.importers import import_spot_trace
from tests.support.market_fixtures import (
    ELSEWHERE,
    ON_DEMAND,
    SPOT,
    Sim,
    after,
    market,
    pool_history,
    training_job,
)


def world(drop_s: float = 1e6, *, notice_s: float = 120.0) -> Sim:
    """Four spot nodes until ``drop_s``, then none; on-demand always."""
    return Sim(
        market(
            pool_history(SPOT, [(0, 4, 1.0), (drop_s, 0, 1.0)], 2e6),
            pool_history(ELSEWHERE, [(0, 4, 1.0)], 2e6),
            pool_history(ON_DEMAND, [(0, 99, 3.0)], 2e6),
        ),
        notice_s,
    )


def at(sim: Sim, job: Job, seconds: float) -> Progress:
    return sim.provider.runtime.progress(job, sim.go(seconds))


def test_a_job_never_heard_of_has_done_nothing() -> None:
    sim = world()
    assert at(sim, training_job(), 5) == Progress()
    assert sim.provider.runtime.is_drained(training_job()) == frozenset()


def test_startup_then_work_with_blocking_saves_then_the_final_save() -> None:
    sim, job = world(), training_job(1000.0)
    sim.provider.runtime.form_gang(job, 1, sim.launch(), 400.0)
    starting = at(sim, job, 50)
    assert (starting.state, starting.starting_until) == (GangState.STARTING, after(100))
    training = at(sim, job, 300)
    assert (training.done_units, training.saved_units) == (200.0, 0.0)
    assert (training.state, training.measured_units_per_s) == (GangState.TRAINING, 1.0)
    assert at(sim, job, 505).done_units == 400.0
    assert at(sim, job, 509.9).saved_units == 0.0
    assert at(sim, job, 510).saved_units == 400.0
    assert at(sim, job, 610).done_units == 500.0
    saving = at(sim, job, 1125)
    assert (saving.state, saving.done_units, saving.saved_units) == (
        GangState.STOPPING,
        1000.0,
        800.0,
    )
    finished = at(sim, job, 1130)
    assert (finished.state, finished.saved_units) == (GangState.FINISHED, 1000.0)
    records = sim.provider.runtime.checkpoints(job, 0.0)
    assert [(r.units, r.committed_at) for r in records] == [
        (400.0, after(510)),
        (800.0, after(920)),
        (1000.0, after(1130)),
    ]
    assert [r.units for r in sim.provider.runtime.checkpoints(job, 800.0)] == [1000.0]


def test_a_notice_long_enough_loses_nothing() -> None:
    sim, job = world(drop_s=500), training_job(1000.0)
    sim.provider.runtime.form_gang(job, 1, sim.launch(), 1e4)
    assert at(sim, job, 495).state is GangState.STOPPING
    idle = at(sim, job, 600)
    assert (idle.state, idle.done_units, idle.saved_units) == (GangState.IDLE, 390.0, 390.0)
    assert idle.lost_units == 0


def test_a_notice_too_short_loses_what_is_not_saved() -> None:
    sim, job = world(drop_s=500, notice_s=9.0), training_job(1000.0)
    sim.provider.runtime.form_gang(job, 1, sim.launch(), 200.0)
    assert at(sim, job, 499).done_units == 389.0
    assert at(sim, job, 500).state is GangState.IDLE
    idle = at(sim, job, 600)
    assert (idle.state, idle.done_units, idle.saved_units) == (GangState.IDLE, 200.0, 200.0)
    assert idle.lost_units == 190.0


def test_a_released_member_breaks_the_gang_without_notice() -> None:
    sim, job = world(), training_job(1000.0)
    first, _ = sim.launch(2)
    sim.provider.runtime.form_gang(job, 1, sim.provider.nodes("me"), 1e4)
    sim.go(300)
    sim.provider.terminate(first.node_id)
    broken = at(sim, job, 301)
    assert (broken.state, broken.done_units, broken.lost_units) == (GangState.IDLE, 0.0, 400.0)
    assert "sim-0001" in broken.message


def test_a_reformed_gang_restores_and_goes_on_from_what_is_saved() -> None:
    sim, job = world(drop_s=500), training_job(1000.0)
    runtime = sim.provider.runtime
    runtime.form_gang(job, 1, sim.launch(), 1e4)
    sim.go(600)
    runtime.form_gang(job, 2, sim.launch(1, ELSEWHERE, "k2"), 1e4)
    assert at(sim, job, 610).starting_until == after(600 + 100 + 50)
    assert at(sim, job, 760).done_units == 400.0
    assert at(sim, job, 760).generation == 2


def test_forming_again_changes_nothing() -> None:
    sim, job = world(), training_job(1000.0)
    nodes = sim.launch()
    sim.provider.runtime.form_gang(job, 3, nodes, 1e4)
    before = at(sim, job, 300)
    sim.provider.runtime.form_gang(job, 3, nodes, 1e4)
    sim.provider.runtime.form_gang(job, 2, nodes, 1e4)
    assert at(sim, job, 300) == before


def test_regrouping_a_gang_that_trains_saves_first() -> None:
    sim, job = world(), training_job(1000.0)
    (node,) = sim.launch()
    sim.provider.runtime.form_gang(job, 1, (node,), 1e4)
    sim.go(300)
    extra = sim.launch(1, ON_DEMAND, "k2")
    sim.go(450)
    sim.provider.runtime.form_gang(job, 2, (node, *extra), 1e4)
    assert at(sim, job, 451).starting_until == after(450 + 10 + 50)
    assert at(sim, job, 520).done_units == 350.0 + 2 * 10.0


def test_a_drain_stops_saves_and_then_lets_go() -> None:
    sim, job = world(), training_job(1000.0)
    runtime = sim.provider.runtime
    first, second = sim.launch(2)
    runtime.form_gang(job, 1, (first, second), 1e4)
    sim.go(300)
    runtime.drain(job, [first.node_id, "a node that never trained"])
    assert runtime.is_drained(job) == {"a node that never trained"}
    assert at(sim, job, 305).state is GangState.STOPPING
    sim.go(310)
    assert first.node_id in runtime.is_drained(job)
    idle = at(sim, job, 400)
    assert (idle.state, idle.saved_units) == (GangState.IDLE, 400.0)
    runtime.form_gang(job, 2, (first,), 1e4)
    assert first.node_id not in runtime.is_drained(job)


def test_a_drain_that_has_nothing_to_save_is_done_at_once() -> None:
    sim, job = world(), training_job(1000.0, save_s=0.0)
    runtime = sim.provider.runtime
    (node,) = sim.launch()
    runtime.form_gang(job, 1, (node,), 1e4)
    sim.go(300)
    runtime.drain(job, [node.node_id])
    assert runtime.is_drained(job) == {node.node_id}
    assert at(sim, job, 300).saved_units == 200.0


def test_a_second_loss_during_the_save_loses_the_work() -> None:
    sim = Sim(
        market(
            pool_history(SPOT, [(0, 1, 1.0), (500, 0, 1.0)], 2e6),
            pool_history(ON_DEMAND, [(0, 99, 3.0)], 2e6),
        )
    )
    job = training_job(1000.0, save_s=100.0)
    nodes = (*sim.launch(), *sim.launch(1, ON_DEMAND, "k2"))
    sim.provider.runtime.form_gang(job, 1, nodes, 1e4)
    sim.go(450)
    sim.provider.terminate("sim-0002")
    assert at(sim, job, 500).saved_units == 0.0
    assert at(sim, job, 500).lost_units == 600.0


def test_the_work_never_exceeds_its_amount_and_survives_its_nodes() -> None:
    sim, job = world(drop_s=1150), training_job(1000.0)
    sim.provider.runtime.form_gang(job, 1, sim.launch(), 1e4)
    for seconds in (1100, 1200, 5000):
        assert at(sim, job, seconds).done_units == 1000.0
    assert at(sim, job, 6000).state is GangState.FINISHED
    sim.provider.runtime.form_gang(job, 2, sim.launch(1, ELSEWHERE, "k2"), 1e4)
    assert at(sim, job, 6001).state is GangState.FINISHED


def test_gangs_that_cannot_train_are_refused() -> None:
    sim, job = world(), training_job()
    nodes = sim.launch()
    with pytest.raises(BadRequestError):
        sim.provider.runtime.form_gang(job, 1, (), 100.0)
    with pytest.raises(BadRequestError):
        sim.provider.runtime.form_gang(job, 1, nodes, 0.0)
    strange = Pool("aws", "us-east-1", "us-east-1a", "x9.large", SPOT.capacity_type)
    sim = Sim(market(pool_history(strange, [(0, 1, 1.0)], 9e3)))
    with pytest.raises(CatalogError, match=r"x9\.large"):
        sim.provider.runtime.form_gang(job, 1, sim.launch(1, strange), 100.0)


HOUR_S = 3600.0


def _reference_steps(
    trace: list[int], gap_s: float, overhead_s: float, work_s: float, deadline_s: float
) -> list[tuple[str | None, float]]:
    """Mode and progress per tick of greedy with the shield, by the public simulator's rules."""
    steps: list[tuple[str | None, float]] = []
    done = rem = 0.0
    mode: str | None = None
    for tick, available in enumerate(trace):
        if mode == "spot" and not available:
            mode = None
        if done >= work_s - 1e-8:
            break
        left_s = deadline_s - (tick + 1) * gap_s - overhead_s
        wanted = "on_demand" if work_s - done > left_s else ("spot" if available else None)
        if wanted != mode:
            rem = overhead_s
        mode = wanted
        steps.append((mode, done))
        if mode is not None:
            done = min(done + max(gap_s - rem, 0.0), work_s)
            rem = max(rem - gap_s, 0.0)
    return steps


def _replayed_steps(
    history: MarketHistory, job: Job, modes: list[str | None], gap_s: float, start_at: datetime
) -> list[float]:
    """Progress per tick when the same modes are driven through the provider and the runtime."""
    sim = Sim(history)
    sim.clock.at = start_at
    provider, runtime = sim.provider, sim.provider.runtime
    pools = {pool.capacity_type.value: pool for pool in history.pools}
    done: list[float] = []
    for tick, mode in enumerate(modes):
        done.append(runtime.progress(job, sim.clock.now()).done_units)
        alive = [node for node in provider.nodes("me") if node.state.is_alive]
        if [node.pool.capacity_type.value for node in alive] != ([mode] if mode else []):
            runtime.drain(job, [node.node_id for node in alive])
            assert {node.node_id for node in alive} <= runtime.is_drained(job)
            for node in alive:
                provider.terminate(node.node_id)
            if mode:
                runtime.form_gang(job, tick + 1, sim.launch(1, pools[mode], f"k{tick}"), 1800.0)
        sim.clock.sleep(gap_s)
    return done


@pytest.mark.parametrize("overhead_h", [0.02, 0.3])
@pytest.mark.parametrize("deadline_h", [52.0, 92.0])
def test_progress_is_that_of_the_public_benchmark(overhead_h: float, deadline_h: float) -> None:
    """Where start-up is the overhead and saving is free, tick by tick (NSDI'24, §5)."""
    data = os.environ.get("COSTOPT_DATA")
    if data is None:
        pytest.skip("COSTOPT_DATA names no folder of recorded data")
    path = Path(data) / "traces" / "availability_1-node_aws-10-26-2022_us-west-2b_v100_1.json"
    raw = json.loads(path.read_text())
    gap_s, overhead_s, deadline_s = 600.0, overhead_h * HOUR_S, deadline_h * HOUR_S
    work_s = 48 * HOUR_S
    history = import_spot_trace(path, spot_usd_per_hour=0.9731, on_demand_usd_per_hour=3.06)
    job = training_job(work_s, startup_s=overhead_s, restore_s=0.0, save_s=0.0)
    expected = _reference_steps(raw["data"], gap_s, overhead_s, work_s, deadline_s)
    modes = [mode for mode, _ in expected]
    done = _replayed_steps(history, job, modes, gap_s, history.starts_at)
    assert done == pytest.approx([units for _, units in expected], abs=1e-6)


HALF = PowerCap(150.0, 0.5, 450.0, "test")


def test_a_changed_cap_changes_the_speed_and_saves_nothing_alone() -> None:
    sim, job = world(), training_job(1000.0)
    (node,) = sim.launch()
    runtime = sim.provider.runtime
    runtime.form_gang(job, 1, (node,), 400.0)
    assert at(sim, job, 300).done_units == 200.0
    assert runtime.power_limits(job) == ()
    runtime.cap_power(job, HALF)
    assert runtime.power_limits(job) == (PowerLimitRecord(node.node_id, 150.0, 150.0, "simulated"),)
    capped = at(sim, job, 500)
    assert (capped.done_units, capped.saved_units, capped.state) == (300.0, 0.0, GangState.TRAINING)
    assert capped.measured_units_per_s == 0.5
    assert (at(sim, job, 709).saved_units, at(sim, job, 711).saved_units) == (0.0, 400.0)
    runtime.cap_power(job, None)
    assert at(sim, job, 811).done_units == 500.5
    assert runtime.power_limits(job) == (PowerLimitRecord(node.node_id, None, None, "no limit"),)


def test_a_node_lost_after_a_changed_cap_costs_what_was_unsaved_before_it_too() -> None:
    sim, job = world(400.0, notice_s=0.0), training_job(1000.0)
    sim.provider.runtime.form_gang(job, 1, sim.launch(), 1000.0)
    assert at(sim, job, 300).done_units == 200.0
    sim.provider.runtime.cap_power(job, HALF)
    lost = at(sim, job, 500)
    assert (lost.done_units, lost.lost_units) == (0.0, 250.0)


def test_a_cap_before_training_begins_does_not_begin_it() -> None:
    sim, job = world(), training_job(1000.0)
    sim.provider.runtime.form_gang(job, 1, sim.launch(), 1e4)
    sim.go(50)
    sim.provider.runtime.cap_power(job, HALF)
    assert at(sim, job, 100).done_units == 0.0
    assert at(sim, job, 300).done_units == 100.0
