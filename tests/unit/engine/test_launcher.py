"""Many launches of one tick: announced together, checked and answered one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import pytest

from costopt.domain.errors import ProviderUnavailableError
from costopt.domain.events import (
    DrainIntended,
    Event,
    GuardTripped,
    LaunchFailed,
    LaunchIntended,
)
from costopt.domain.fleet import Action, Launch, LaunchRequest, Node
from costopt.domain.policy import Limits
from costopt.domain.view import Target
from costopt.engine import launcher
from costopt.engine.guards import Guards, LaunchLimits
from costopt.engine.launcher import Launcher
from costopt.engine.quotas import GuardViolation, UsageTally
from costopt.ledger.base import MemoryLedger
from tests.support.engine_fixtures import SAFE, SPOT_A, SPOT_B, Follow, Scene, always, rules, task
from tests.support.engines import start_engine

NAMES = ("one", "two", "three")


class Appends(MemoryLedger):
    """Remembers what was written at once."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[tuple[Event, ...]] = []

    def append(self, *events: Event) -> None:
        self.batches.append(events)
        super().append(*events)


class HaltedAfter:
    """A gate that somebody shuts once so many launches were asked for."""

    is_acting = is_unattended = True

    def __init__(self, scene: Scene, most: int | None) -> None:
        self._scene = scene
        self.most = most

    def permitted(
        self, actions: Sequence[Action], bounds: Mapping[str, LaunchLimits], now: datetime
    ) -> tuple[Action, ...]:
        return tuple(actions)

    def settle(self, refused: Mapping[Launch, str], now: datetime) -> None:
        """Nobody was asked."""

    def halt(self) -> GuardViolation | None:
        halted = self.most is not None and len(self._scene.cloud.requests) >= self.most
        return GuardViolation("halt", "enough") if halted else None


def _scene(limits: Limits | None = None) -> Scene:
    return Scene(
        always(SPOT_A, 4, 2.0),
        always(SPOT_B, 4, 3.0),
        always(SAFE, 9, 8.0),
        jobs=[task(name=name) for name in NAMES],
        strategy=Follow(Target(SPOT_A, 1), two=(Target(SPOT_B, 1),)),
        policy=rules("greedy_spot", limits=limits or Limits()),
    )


def test_launches_are_announced_at_once_and_so_are_their_outcomes() -> None:
    scene = _scene()
    ledger = scene.ledger = Appends()
    scene.restart()
    scene.tick()
    kinds = [[type(event).__name__ for event in batch] for batch in ledger.batches]
    assert kinds.count(["LaunchIntended"] * 3) == 1
    assert kinds.count(["NodeLaunched"] * 3) == 1
    assert all(len(scene.living(name)) == 1 for name in NAMES)


def test_a_pool_that_has_just_refused_is_not_asked_for_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launcher, "TOGETHER", 1)
    scene = _scene()
    scene.cloud.refusing = {SPOT_A}
    scene.tick()
    assert [(r.job, r.pool) for r in scene.cloud.requests] == [("one", SPOT_A), ("two", SPOT_B)]
    assert len(scene.events(LaunchFailed, "one")) == 1
    assert scene.events(LaunchIntended, "three") == []


def test_a_pool_that_refuses_is_asked_for_nothing_more_that_was_announced() -> None:
    scene = _scene()
    scene.cloud.refusing = {SPOT_A}
    scene.tick()
    assert [(r.job, r.pool) for r in scene.cloud.requests] == [("one", SPOT_A), ("two", SPOT_B)]
    assert len(scene.events(LaunchIntended, "three")) == 1
    (failed,) = scene.events(LaunchFailed, "three")
    assert failed.message.startswith("not requested")
    assert scene.engine.journal.records["three"].intents == {}


def test_a_launch_that_may_have_happened_is_asked_for_again_where_its_pool_refuses_others() -> None:
    scene = _scene()
    scene.cloud.silent = {"launch"}
    scene.tick()
    scene.cloud.silent, scene.cloud.refusing = set(), {SPOT_A}
    scene.cloud.requests.clear()
    scene.tick()
    assert [r.key for r in scene.cloud.requests] == ["one-0001", "two-0001", "three-0001"]


def test_each_time_twice_as_many_launches_are_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "TOGETHER", 1)
    scene = _scene()
    ledger = scene.ledger = Appends()
    scene.restart()
    scene.tick()
    kinds = [[type(event).__name__ for event in batch] for batch in ledger.batches]
    announced = [len(batch) for batch in kinds if batch[0] == "LaunchIntended"]
    assert announced == [1, 2]


def test_what_a_refused_launch_leaves_room_for_is_launched() -> None:
    scene = _scene(limits=Limits(max_nodes=1))
    scene.cloud.refusing = {SPOT_A}
    scene.tick()
    assert len(scene.living("two")) == 1
    assert scene.events(GuardTripped, "two") == []


def test_what_a_lost_answer_may_have_brought_is_counted_in_until_the_next_listing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = _scene(limits=Limits(max_nodes=1))
    launch = scene.cloud.launch

    def lose(request: LaunchRequest) -> tuple[Node, ...]:
        launch(request)
        raise ProviderUnavailableError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(launcher, "TOGETHER", 1)
        patch.setattr(scene.cloud, "launch", lose)
        scene.tick()
    assert sum(len(scene.living(name)) for name in NAMES) == 1
    scene.tick()
    assert [len(scene.living(name)) for name in NAMES] == [1, 0, 0]


def test_a_launch_that_never_arrived_takes_no_room_for_long() -> None:
    scene = _scene(limits=Limits(max_nodes=1))
    scene.engine.stop("not now", "three")
    scene.cloud.silent = {"launch"}
    scene.tick()
    scene.engine.stop("nor this", "one")
    scene.cloud.silent = set()
    scene.go(120)
    assert [len(scene.living(name)) for name in NAMES] == [0, 1, 0]


def test_a_halt_stops_launches_that_were_announced() -> None:
    scene = _scene()
    gate = HaltedAfter(scene, most=1)
    world, strategy = scene.engine.world, scene.strategy
    assert strategy is not None
    scene.engine = start_engine(scene.jobs, scene.policy, strategy, world, scene.settings, gate)
    scene.tick()
    assert [r.job for r in scene.cloud.requests] == ["one"]
    for name in ("two", "three"):
        (unsent,) = scene.events(LaunchFailed, name)
        assert (unsent.key, unsent.error) == (f"{name}-0001", "NotSent")
        assert unsent.message == "enough, before it was sent"
        assert not scene.engine.journal.records[name].intents
        assert scene.engine.journal.summary(name, scene.clock.now()).failed_launches == 0
    scene.go(600)
    assert len(scene.events(LaunchIntended, "three")) == 1
    gate.most = None
    scene.tick()
    assert [r.key for r in scene.cloud.requests] == ["one-0001", "two-0002", "three-0002"]
    assert all(len(scene.living(name)) == 1 for name in NAMES), "no pool was to blame"


def test_a_halt_leaves_what_was_sent_in_doubt() -> None:
    scene = _scene()
    gate = HaltedAfter(scene, most=None)
    world, strategy = scene.engine.world, scene.strategy
    assert strategy is not None
    scene.engine = start_engine(scene.jobs, scene.policy, strategy, world, scene.settings, gate)
    scene.cloud.silent = {"launch"}
    scene.tick()
    gate.most = 0
    scene.tick()
    assert scene.events(LaunchFailed, "one") == []
    scene.go(600)
    assert [e.error for e in scene.events(LaunchFailed, "one")] == ["lost"]


def test_what_was_not_sent_in_time_and_is_no_longer_desired_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = _scene()
    monkeypatch.setattr(Launcher, "is_overdue", lambda self, _: bool(self._unsent))
    scene.tick()
    assert scene.cloud.requests == []
    scene.engine.stop("not any more", "one")
    monkeypatch.undo()
    scene.tick()
    assert [e.error for e in scene.events(LaunchFailed, "one")] == ["NotSent"]
    assert [r.key for r in scene.cloud.requests] == ["two-0001", "three-0001"]


@pytest.mark.parametrize(
    "limits", [Limits(), Limits(max_launches_per_hour=3)], ids=["halt", "rate"]
)
def test_what_is_refused_whatever_runs_is_not_counted_job_by_job(
    monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    scene, strategy = _scene(limits), Follow(Target(SPOT_A, 1))
    gate = HaltedAfter(scene, most=3 if limits == Limits() else None)
    world, settings = scene.engine.world, scene.settings
    scene.engine = start_engine(scene.jobs, scene.policy, strategy, world, settings, gate)
    scene.tick()
    strategy.targets = (Target(SAFE, 1),)
    tallied: list[datetime] = []
    tally = Guards.tally

    def counted(guards: Guards, nodes: Sequence[Node], now: datetime) -> UsageTally:
        tallied.append(now)
        return tally(guards, nodes, now)

    monkeypatch.setattr(Guards, "tally", counted)
    scene.tick()
    assert len(tallied) == 1
    for name in NAMES:
        assert len(scene.events(GuardTripped, name)) == 1
        assert [node.pool for node in scene.living(name)] == [SPOT_A]
        assert scene.events(DrainIntended, name) == []
