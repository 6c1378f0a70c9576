"""What the runtime reports becomes events, and a slow job is known to be slow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from costopt.domain.events import (
    CheckpointCommitted,
    GangFormed,
    JobFailed,
    JobFinished,
    NodeLaunched,
    ProgressReported,
    TrainingStarted,
    TrainingStopped,
    WorkLost,
)
from costopt.domain.fleet import Node
from costopt.domain.job import Job
from costopt.domain.power import PowerCap
from costopt.domain.progress import GangState, Progress
from costopt.domain.runtime import CheckpointRecord
from costopt.ledger.summary import JobState
from tests.support.engine_fixtures import (
    HOUR_S,
    SAFE,
    SPOT_A,
    SPOT_B,
    Scene,
    SomeHazard,
    always,
    changing,
    rules,
    task,
)
from tests.support.forwarding import Forwarding
from tests.support.known_figure import known
from tests.support.market_fixtures import T0, after


class Changed(Forwarding):
    """A runtime whose progress a test may change on its way to the engine."""

    def __init__(self, inner: Any, change: Callable[[Progress], Progress]) -> None:
        super().__init__(inner)
        self._change = change

    def progress(self, job: Job, now: datetime) -> Progress:
        return self._change(self._inner.progress(job, now))


def saves_until(
    scene: Scene, known: Sequence[tuple[float, float, int]], after_units: float
) -> tuple[CheckpointRecord, ...]:
    """Those of (units, seconds, generation) that are durable by now, beyond ``after_units``."""
    return tuple(
        CheckpointRecord(units, f"saves/{units}", after(s), generation=generation)
        for units, s, generation in known
        if units > after_units and scene.clock.now() >= after(s)
    )


class Slower(Forwarding):
    """A runtime on which a job runs at a share of the speed that its spec tells."""

    def __init__(self, inner: Any, share: float) -> None:
        super().__init__(inner)
        self._share = share

    def form_gang(
        self,
        job: Job,
        generation: int,
        nodes: tuple[Node, ...],
        checkpoint_interval_s: float,
        power_cap: PowerCap | None = None,
    ) -> None:
        slow = replace(
            job,
            throughput=replace(
                job.throughput,
                points=tuple(
                    replace(p, units_per_s=p.units_per_s * self._share)
                    for p in job.throughput.points
                ),
            ),
        )
        self._inner.form_gang(slow, generation, nodes, checkpoint_interval_s, power_cap)


def test_a_run_is_reported_from_its_start_to_its_end() -> None:
    scene = Scene(always(SPOT_A, 1, 2.0), jobs=[task(2 * HOUR_S)])
    scene.finish()
    (started,) = scene.events(TrainingStarted)
    (stopped,) = scene.events(TrainingStopped)
    (finished,) = scene.events(JobFinished)
    saves = scene.events(CheckpointCommitted)
    assert started.at == after(100)
    assert [round(s.units) for s in saves] == [1800, 3600, 5400, 7200]
    assert finished.at == stopped.at == saves[-1].at == after(100 + 7200 + 4 * 10)
    summary = scene.summary()
    assert summary.state is JobState.FINISHED
    assert summary.busy_wh == pytest.approx(7240 / 3.6, rel=1e-3)


@pytest.mark.slow
def test_progress_is_reported_at_every_hundredth_and_not_at_every_tick() -> None:
    scene = Scene(always(SPOT_A, 1, 2.0), jobs=[task(30 * HOUR_S)])
    scene.finish(3000)
    assert 60 < len(scene.events(ProgressReported)) < 250


def test_what_an_interruption_loses_is_reported_once() -> None:
    scene = Scene(
        changing(SPOT_A, (0, 1, 2.0), (3600, 0, 2.0)), always(SPOT_B, 1, 3.0), jobs=[task()]
    )
    scene.finish()
    (lost,) = scene.events(WorkLost)
    assert lost.units == pytest.approx(3600 - 100 - 1800 - 10)
    assert scene.summary().lost_units == lost.units


def test_a_job_that_fails_gives_its_nodes_back_and_ends() -> None:
    scene = Scene(always(SPOT_A, 1, 2.0), jobs=[task(name="job"), task(HOUR_S, name="other")])

    def broken(progress: Progress) -> Progress:
        if progress.done_units > 0 and scene.clock.now() > after(1200):
            return replace(progress, state=GangState.FAILED, message="exit code 1, log x.log")
        return progress

    scene.jobs = [task()]
    scene.cloud.runtime = Changed(scene.cloud.inner.runtime, broken)
    scene.restart()
    scene.finish(60)
    (failed,) = scene.events(JobFailed)
    assert failed.message == "exit code 1, log x.log"
    assert scene.engine.failed == {"job": failed.message}
    assert scene.engine.unfinished == ()
    assert not scene.living()
    assert scene.summary().state is JobState.FAILED
    assert scene.summary().on_time is False


def test_a_slow_job_goes_to_on_demand_earlier_and_is_in_time() -> None:
    """At 0.6 of its speed 10 h of work are 16.7 h; the deadline leaves 20."""
    went_at: dict[float, datetime] = {}
    for share in (1.0, 0.6):
        scene = Scene(
            changing(SPOT_A, (0, 1, 2.0), (2 * HOUR_S, 0, 2.0)),
            always(SAFE, 9, 8.0),
            jobs=[task(10 * HOUR_S, 20 * HOUR_S)],
            policy=rules("greedy_spot"),
            tick_s=300,
        )
        scene.cloud.runtime = Slower(scene.cloud.inner.runtime, share)
        scene.restart()
        scene.finish()
        assert scene.summary().on_time is True
        went_at[share] = next(
            e.launched_at for e in scene.events(NodeLaunched) if e.pool == str(SAFE)
        )
    assert went_at[0.6] < went_at[1.0] - timedelta(hours=4)


def test_the_speed_that_was_measured_is_relative_to_the_one_that_was_reported() -> None:
    scene = Scene(always(SPOT_A, 1, 2.0), jobs=[task()])
    scene.cloud.runtime = Slower(scene.cloud.inner.runtime, 0.5)
    scene.restart()
    scene.go(100)
    assert scene.engine.training.speed_factor == {"job": 1.0}
    scene.go(900)
    assert scene.engine.training.speed_factor == {"job": pytest.approx(0.5)}
    assert scene.engine.progress_of("job").state is GangState.TRAINING
    assert scene.clock.now() > T0


def test_work_saved_by_a_gang_that_was_taken_before_its_command_ended() -> None:
    """All is saved, yet nobody said that the command ended: another gang is formed to end it."""

    def cut_short(progress: Progress) -> Progress:
        if progress.state is GangState.FINISHED and len(scene.events(GangFormed)) == 1:
            return replace(progress, state=GangState.IDLE)
        return progress

    scene = Scene(
        always(SPOT_A, 4, 2.0),
        always(SAFE, 4, 8.0),
        jobs=[task(1800)],
        policy=rules("milp"),
        hazards=SomeHazard(),
        tick_s=300,
    )
    scene.cloud.runtime = Changed(scene.cloud.inner.runtime, cut_short)
    scene.restart()
    scene.finish(60)
    assert len(scene.events(JobFinished)) == 1
    assert len(scene.events(GangFormed)) == 2
    starts = [e.at for e in scene.events(TrainingStarted)]
    stops = [e.at for e in scene.events(TrainingStopped)]
    assert all(start <= stop for start, stop in zip(starts, stops, strict=True))


@pytest.mark.parametrize(("heard_of", "saved_s"), [(600.0, 500.0), (950.0, 1250.0), (950.0, 950.0)])
@pytest.mark.parametrize(("resumed", "lost"), [(900.0, []), (850.0, [50.0]), (600.0, [300.0])])
def test_what_a_gang_found_in_the_memory_of_a_node_is_not_lost(
    resumed: float, lost: list[float], heard_of: float, saved_s: float
) -> None:
    """900 are done and 600 saved when the first gang breaks; the second has begun by 1500, and its
    own save may have been ``heard_of`` before its start, be that sooner than was expected."""

    class Saving(Changed):
        def checkpoints(self, _: Job, after_units: float) -> tuple[CheckpointRecord, ...]:
            known = [(600.0, 500.0, 1), (heard_of, saved_s, 2)]
            return saves_until(scene, known, after_units)

    def figures_of(progress: Progress) -> Progress:
        now, first = scene.clock.now(), progress.generation == 1
        trains = now < after(900) if first else now > after(1500)
        state = GangState.IDLE if first else GangState.STARTING
        saved = heard_of if now > after(1200) else 600.0
        if progress.generation == 0:
            return progress
        return replace(
            progress,
            state=GangState.TRAINING if trains else state,
            done_units=(900.0 if first else 1000.0) if trains else saved,
            saved_units=saved,
            lost_units=0.0,
            resumed_units=(0.0 if first else resumed) if trains else None,
        )

    scene = Scene(always(SPOT_A, 4, 2.0), always(SAFE, 4, 8.0), jobs=[task(3600)], tick_s=300)
    scene.cloud.runtime = Saving(scene.cloud.inner.runtime, figures_of)
    scene.restart()
    for _ in range(8):
        scene.go(300)
    assert len(scene.events(GangFormed)) == 2
    assert [event.units for event in scene.events(WorkLost)] == lost
    summary = scene.summary()
    assert summary.lost_units == sum(lost)
    assert summary.done_units == 1000.0
    assert [event.units for event in scene.events(TrainingStarted)] == [0.0, resumed]


def test_a_save_that_ends_after_the_next_gang_was_formed_is_not_lost() -> None:
    """870 of 900 were reported when the first gang broke. The second says nothing for longer than
    its start was to take, and is taken for one that trains."""

    class Saving(Changed):
        def checkpoints(self, _: Job, after_units: float) -> tuple[CheckpointRecord, ...]:
            known = [(600.0, 500.0, 1), (900.0, 905.0, 1)]
            return saves_until(scene, known, after_units)

    def figures_of(progress: Progress) -> Progress:
        now, first = scene.clock.now(), progress.generation == 1
        if progress.generation == 0:
            return progress
        trains = now < after(900) if first else now > after(1500)
        saved = 900.0 if now > after(905) else 600.0
        return replace(
            progress,
            state=GangState.TRAINING if trains else GangState.IDLE if first else GangState.STARTING,
            done_units=(870.0 if first else 1000.0) if trains else saved,
            saved_units=saved,
            lost_units=0.0,
            unreported=not first and not trains and now > after(1300),
        )

    scene = Scene(always(SPOT_A, 4, 2.0), always(SAFE, 4, 8.0), jobs=[task(3600)], tick_s=300)
    scene.cloud.runtime = Saving(scene.cloud.inner.runtime, figures_of)
    scene.restart()
    for _ in range(8):
        scene.go(300)
    assert len(scene.events(GangFormed)) == 2
    assert scene.events(WorkLost) == []


@pytest.mark.parametrize(("saved", "committed_s", "lost"), [(900, 899, 0), (950, 1400, 270)])
def test_a_save_that_a_killed_controller_had_not_heard_of(
    saved: float, committed_s: float, lost: float
) -> None:
    """870 of 900 were reported when it was killed, and 600 saved. Its second gang, whose command
    does not say where it resumed, trains when the next controller begins: it resumed from what was
    saved before it was formed. What was saved later may be its own."""

    class Unheard(Changed):
        def checkpoints(self, _: Job, after_units: float) -> tuple[CheckpointRecord, ...]:
            new = (saved, committed_s, 1 if committed_s < 900 else 2)
            known = [(600.0, 500.0, 1), *([new] if is_heard else [])]
            return saves_until(scene, known, after_units)

    def figures_of(progress: Progress) -> Progress:
        now, first = scene.clock.now(), progress.generation == 1
        if progress.generation == 0:
            return progress
        trains = now < after(900) if first else is_heard
        state = GangState.IDLE if first else GangState.STARTING
        return replace(
            progress,
            state=GangState.TRAINING if trains else state,
            done_units=(870.0 if first else 1000.0) if trains else 600.0,
            saved_units=saved if is_heard else 600.0,
            lost_units=0.0,
            resumed_units=None,
        )

    is_heard = False
    scene = Scene(always(SPOT_A, 4, 2.0), always(SAFE, 4, 8.0), jobs=[task(3600)], tick_s=300)
    scene.cloud.runtime = Unheard(scene.cloud.inner.runtime, figures_of)
    scene.restart()
    for _ in range(4):
        scene.go(300)
    assert len(scene.events(GangFormed)) == 2
    is_heard = True
    scene.restart()
    scene.go(300)
    assert sum(event.units for event in scene.events(WorkLost)) == lost
    assert scene.events(TrainingStarted)[-1].units == (900 if lost == 0 else 600)


def test_a_gang_that_starts_or_stops_has_lost_nothing_yet() -> None:
    """Until it says what became of unsaved work, a lower figure is no loss."""
    states = iter([GangState.TRAINING, GangState.STOPPING, GangState.STARTING, GangState.TRAINING])

    def figures_of(progress: Progress) -> Progress:
        state = next(states, GangState.TRAINING)
        done = 900.0 if state is GangState.TRAINING else 600.0
        return replace(
            progress, state=state, done_units=done, saved_units=600.0, generation=1, lost_units=0.0
        )

    scene = Scene(always(SPOT_A, 4, 2.0), always(SAFE, 4, 8.0), jobs=[task(3600)], tick_s=300)
    scene.tick()
    scene.cloud.runtime = Changed(scene.cloud.inner.runtime, figures_of)
    scene.restart()
    for _ in range(5):
        scene.go(300)
    assert scene.summary().done_units == 900
    assert scene.events(WorkLost) == []


class Mute(Forwarding):
    """A runtime whose command says nothing of itself, and ``began`` at most."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.state = GangState.STARTING

    def progress(self, job: Job, now: datetime) -> Progress:
        reported = self._inner.progress(job, now)
        return Progress(
            state=reported.state if reported.state is GangState.IDLE else self.state,
            generation=reported.generation,
            starting_until=reported.starting_until,
            unreported=now > after(30),
        )


def mute_scene(*, restarted: bool = False, noticed: bool = False) -> Scene:
    """Its node goes after an hour, having started within 100 s; another replaces it."""
    scene = Scene(
        changing(SPOT_A, (0, 1, 2.0), (HOUR_S, 0, 2.0)),
        always(SPOT_B, 1, 3.0),
        jobs=[task(100 * HOUR_S, 200 * HOUR_S)],
        notice_s=120.0 if noticed else 0.0,
    )
    scene.cloud.runtime = Mute(scene.cloud.inner.runtime)
    scene.restart()
    scene.go(HOUR_S / 2)
    if restarted:
        scene.restart()
    scene.go(HOUR_S / 2 + 600)
    return scene


@pytest.mark.parametrize("noticed", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_command_that_reports_nothing_draws_busy_power_until_its_node_goes(
    restarted: bool, noticed: bool
) -> None:
    scene = mute_scene(restarted=restarted, noticed=noticed)
    (first, *_) = scene.engine.journal.accounts["job"].intervals(scene.clock.now())
    assert first.pool == SPOT_A
    assert first.ended_at == after(HOUR_S)
    assert first.busy_wh == pytest.approx((HOUR_S - 100) / 3.6, rel=0.05)
    rows = scene.engine.journal.accounts["job"].intervals(scene.clock.now())
    summary = scene.summary()
    assert summary.busy_wh == pytest.approx(sum(known(row.busy_wh) for row in rows))
    assert summary.usd_micros == sum(row.usd_micros for row in rows)
    assert scene.events(TrainingStarted)[0].units is None, "where it began is unknown"
    assert scene.events(TrainingStopped)[0].units is None


def test_a_command_that_fails_before_it_could_train_draws_no_busy_power() -> None:
    scene = Scene(always(SPOT_A, 1, 2.0), jobs=[task()])
    mute = Mute(scene.cloud.inner.runtime)
    mute.state = GangState.IDLE
    scene.cloud.runtime = mute
    scene.restart()
    scene.go(120)
    assert scene.summary().busy_wh == 0


def test_a_gang_saves_as_often_as_one_node_of_its_pool() -> None:
    """Its nodes go together, so that it is lost as often."""
    intervals = []
    for nodes in (1, 8):
        own = task(4 * HOUR_S, 40 * HOUR_S, (nodes, nodes))
        own = replace(own, checkpoint=replace(own.checkpoint, interval_s=None))
        scene = Scene(always(SPOT_A, 8, 2.0), jobs=[own], notice_s=0.0)
        scene.go(600)
        (formed,) = scene.events(GangFormed)
        assert len(formed.node_ids) == nodes
        intervals.append(formed.checkpoint_interval_s)
    assert intervals[0] == intervals[1] < 1800
