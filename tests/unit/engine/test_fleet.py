"""The ledger follows what the providers list, and a listing that lags does no harm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costopt.domain.errors import ProviderUnavailableError
from costopt.domain.events import (
    InterruptionNoticed,
    LaunchFailed,
    NodeEnded,
    NodeLaunched,
)
from costopt.domain.fleet import EndCause, LaunchRequest, Node
from costopt.domain.job import Job
from costopt.ledger.base import MemoryLedger
from tests.support.engine_fixtures import SAFE, SPOT_A, SPOT_B, Scene, always, changing, task


def _scene(*jobs: Job) -> Scene:
    return Scene(always(SPOT_A, 4, 2.0), always(SAFE, 9, 8.0), jobs=jobs or [task()])


@pytest.mark.parametrize("restarts", [False, True])
def test_a_fresh_node_that_is_not_listed_yet_is_not_launched_again(restarts: bool) -> None:
    scene = _scene()
    scene.cloud.hidden = {"sim-0001"}
    scene.tick()
    if restarts:
        scene.restart()
    scene.go(180)
    assert len(scene.cloud.requests) == 1
    scene.cloud.hidden = set()
    scene.go(240)
    assert len(scene.cloud.requests) == 1
    assert [n.node_id for n in scene.living()] == ["sim-0001"]


def test_a_node_that_stays_unlisted_is_given_up() -> None:
    scene = _scene()
    scene.tick()
    scene.cloud.hidden = {"sim-0001"}
    scene.go(600)
    (ended,) = scene.events(NodeEnded)
    assert (ended.node_id, ended.cause) == ("sim-0001", EndCause.LOST)
    assert len(scene.cloud.requests) == 2


def test_a_node_that_was_given_up_and_shows_up_again_is_kept_and_the_newer_released() -> None:
    scene = _scene()
    scene.tick()
    scene.cloud.hidden = {"sim-0001"}
    scene.go(600)
    scene.cloud.hidden = set()
    scene.go(120)
    assert [n.node_id for n in scene.living()] == ["sim-0001"]
    assert scene.cloud.released == ["sim-0002"]
    scene.finish()


def test_a_launch_whose_answer_was_lost_is_adopted_from_the_listing() -> None:
    """Nobody wants it any more when it shows up: it is given back."""
    scene = _scene()
    scene.cloud.silent = {"launch"}
    scene.tick()
    scene.cloud.inner.launch(LaunchRequest("costopt", "job", SPOT_A, 1, "job-0001"))
    scene.engine.stop("asked to")
    scene.finish(20)
    assert [e.node_id for e in scene.events(NodeLaunched)] == ["sim-0001"]
    assert not scene.living()


def test_a_launch_that_is_never_answered_is_given_up_after_the_grace_time() -> None:
    scene = _scene()
    scene.cloud.silent = {"launch"}
    scene.go(360)
    (failed,) = scene.events(LaunchFailed)
    assert (failed.key, failed.error) == ("job-0001", "lost")


def test_a_launch_is_not_given_up_while_its_outcome_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(always(SPOT_A, 9, 2.0), jobs=[task()])
    launch = scene.cloud.launch

    def lose(request: LaunchRequest) -> tuple[Node, ...]:
        launch(request)
        raise ProviderUnavailableError("no answer")

    monkeypatch.setattr(scene.cloud, "launch", lose)
    scene.cloud.silent = {"nodes"}
    scene.go(1800)
    assert len(scene.living()) == 1
    assert scene.events(LaunchFailed) == []
    scene.cloud.silent = set()
    scene.go(60)
    assert [event.key for event in scene.events(NodeLaunched)] == ["job-0001"]


def test_nodes_of_others_are_not_touched() -> None:
    scene = _scene()
    scene.cloud.inner.launch(LaunchRequest("costopt", "stranger", SPOT_A, 1, "k"))
    scene.cloud.inner.launch(LaunchRequest("somebody", "job", SPOT_A, 1, "k2"))
    scene.finish()
    living = scene.cloud.inner.nodes("costopt") + scene.cloud.inner.nodes("somebody")
    assert sorted(n.job for n in living if n.state.is_alive) == ["job", "stranger"]


def test_a_notice_brings_a_replacement_and_leaves_the_noticed_node_to_save() -> None:
    scene = Scene(
        changing(SPOT_A, (0, 1, 2.0), (3600, 0, 2.0)),
        always(SPOT_B, 4, 3.0),
        jobs=[task()],
        notice_s=120,
    )
    scene.go(3480)
    scene.tick()
    (noticed,) = scene.events(InterruptionNoticed)
    assert scene.pools() == [SPOT_A, SPOT_B]
    assert not scene.cloud.released
    scene.finish()
    ends = {e.node_id: e for e in scene.events(NodeEnded)}
    assert ends[noticed.node_id].cause is EndCause.INTERRUPTED
    assert ends[noticed.node_id].ended_at == noticed.interrupts_at
    summary = scene.summary()
    assert summary.interruptions == 1
    assert summary.lost_units == 0
    assert len(scene.events(NodeLaunched)) == 2


def test_an_interruption_without_notice_is_recorded_when_it_happened() -> None:
    scene = Scene(
        changing(SPOT_A, (0, 1, 2.0), (3617, 0, 2.0)), always(SPOT_B, 4, 3.0), jobs=[task()]
    )
    scene.go(3660 + 60)
    (ended,) = scene.events(NodeEnded)
    assert (ended.ended_at - scene.jobs[0].start_at).total_seconds() == 3617
    assert ended.at > ended.ended_at


def test_two_engines_over_copies_of_one_ledger_hold_the_same_records() -> None:
    scene = Scene(
        changing(SPOT_A, (0, 1, 2.0), (3600, 0, 2.0), (5400, 1, 2.5)),
        always(SAFE, 4, 8.0),
        jobs=[task()],
        notice_s=120,
    )
    for _ in range(4):
        scene.go(1800)
        lived = scene.engine.journal
        copy = MemoryLedger()
        copy.append(*(r.event for r in scene.all_events()))
        scene.restart()
        resumed = scene.engine.journal
        assert resumed.records == lived.records
        assert resumed.accounts["job"].summary(scene.clock.now()) == lived.accounts["job"].summary(
            scene.clock.now()
        )


@pytest.mark.slow
def test_a_resumed_run_ends_like_one_that_was_never_broken_off() -> None:
    whole, broken = (
        Scene(
            changing(SPOT_A, (0, 1, 2.0), (3600, 0, 2.0), (5400, 1, 2.5)),
            always(SAFE, 4, 8.0),
            jobs=[task(deadline_s=6 * 3600)],
            notice_s=120,
        )
        for _ in range(2)
    )
    whole.finish()
    for _ in range(5000):
        broken.restart()
        if broken.tick().is_done:
            break
    once, often = whole.summary(), broken.summary()
    assert often.wh == pytest.approx(once.wh, rel=0.01)
    energy = {"wh": 0.0, "idle_wh": 0.0, "busy_wh": 0.0, "gco2e": 0.0}
    assert replace(often, **energy) == replace(once, **energy)  # type: ignore[arg-type]
