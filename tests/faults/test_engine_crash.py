"""The controller dies at every point of a run and is started again: nothing doubled, nothing lost.

The engine is killed by an exception at the n-th write to the ledger, before or after it is durable,
and at every call of the provider, before or after it took effect; then a new engine is made over
the same ledger and the same cloud, as a restarted daemon would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

import pytest

from costopt.controller.site import connect_virtual_provider
from costopt.domain.errors import ProviderUnavailableError
from costopt.domain.events import Event, NodeEnded, NodeLaunched
from costopt.domain.fleet import LaunchRequest, Node
from costopt.domain.job import Job
from costopt.domain.ports import Clock, RecordedEvent
from costopt.engine.loop import VirtualClock
from costopt.engine.settings import EngineSettings, World
from costopt.ledger.base import MemoryLedger
from costopt.ledger.job_account import JobAccount
from costopt.provider.wrapper import ProviderWrapper
from costopt.strategies import build
from tests.support.cant_be_late import NoHazard, OneMachine, OnePower, job, market, policy
from tests.support.engines import start_engine
from tests.support.exhaustive import crash_points

GAP_S = 600.0
UP = [1, 1, 1, 0, 0, 1, 1, 1, 1, 0] * 30

T = TypeVar("T")


class Crash(BaseException):
    """The controller is gone: nothing in it may catch this."""


class Fuse:
    """Burns at the n-th step."""

    def __init__(self, steps: int | None) -> None:
        self.left = steps
        self.burnt = 0

    def step(self) -> bool:
        if self.left is None:
            return False
        self.left -= 1
        if self.left == 0:
            self.left = None
            self.burnt += 1
            return True
        return False


class CrashingLedger:
    """Dies at an append, before or after the events are durable."""

    def __init__(self, fuse: Fuse, durable: bool) -> None:
        self.inner = MemoryLedger()
        self._fuse, self._durable = fuse, durable

    def append(self, *events: Event) -> None:
        crash = self._fuse.step()
        if not crash or self._durable:
            self.inner.append(*events)
        if crash:
            raise Crash

    def events(self, job: str | None = None, after: int = 0) -> Iterator[RecordedEvent]:
        return self.inner.events(job, after)


class FaultyProvider(ProviderWrapper):
    """The simulated cloud behind a line that dies at a call, before or after it took effect."""

    def __init__(self, clock: Clock, job: Job, fuse: Fuse, effective: bool, error: bool) -> None:
        self.inner = connect_virtual_provider(
            clock, {"market": market(UP, GAP_S), "machines": OneMachine(), "notice_s": 0.0}
        )
        super().__init__(self.inner)
        self.launched: list[str] = []
        self._fuse, self._effective, self._error = fuse, effective, error

    def _call(self, method: str, call: Callable[[], T]) -> T:
        return call()

    def launch(self, request: LaunchRequest) -> tuple[Node, ...]:
        crash = self._fuse.step()
        if crash and not self._effective:
            self._fail()
        nodes = self.inner.launch(request)
        self.launched += [n.node_id for n in nodes if n.node_id not in self.launched]
        if crash:
            self._fail()
        return nodes

    def terminate(self, node_id: str) -> None:
        crash = self._fuse.step()
        if crash and not self._effective:
            self._fail()
        self.inner.terminate(node_id)
        if crash:
            self._fail()

    def _fail(self) -> None:
        if self._error:
            raise ProviderUnavailableError("no answer")
        raise Crash


class Scene:
    """One job on a cloud that outlives its controllers."""

    def __init__(self, fuse: Fuse, ledger: CrashingLedger, provider: FaultyProvider) -> None:
        self.fuse, self.ledger, self.provider = fuse, ledger, provider

    @property
    def account(self) -> JobAccount:
        account = JobAccount("task")
        for recorded in self.ledger.events("task"):
            account.apply(recorded.event)
        return account


def _task() -> Job:
    task = job(7.0, 0.05, 4.0)
    return replace(task, checkpoint=replace(task.checkpoint, save_s=20.0, interval_s=900.0))


def _run(scene: Scene, clock: VirtualClock) -> int:
    """Run to the end, restarting the controller whenever it dies; the number of its lives."""
    world = World(
        (scene.provider,),
        scene.provider.runtime,
        scene.ledger,
        clock,
        OneMachine(),
        OnePower(),
        NoHazard(),
    )
    rules = policy("uniform_progress")
    settings = EngineSettings(tick_s=GAP_S, cooldown_s=0.0, grace_s=GAP_S)
    lives = 0
    for _ in range(200):
        lives += 1
        try:
            engine = start_engine([_task()], rules, build(rules.strategy), world, settings)
            while not engine.tick().is_done:
                clock.sleep(GAP_S)
        except Crash:
            continue
        return lives
    raise AssertionError("the run never ended")


def _check(scene: Scene) -> None:
    events = [r.event for r in scene.ledger.events("task")]
    launched = [e.node_id for e in events if isinstance(e, NodeLaunched)]
    ended = [e.node_id for e in events if isinstance(e, NodeEnded)]
    assert sorted(launched) == sorted(set(scene.provider.launched)), "a node unknown or doubled"
    assert sorted(ended) == sorted(launched), "a node that never ended"
    nodes = {n.node_id: n for n in scene.provider.nodes("costopt")}
    assert not any(n.state.is_alive for n in nodes.values()), "an orphan"
    summary = scene.account.summary(_task().until_at)
    assert summary.state.value == "finished"
    assert summary.on_time is True
    assert summary.usd_micros == sum(_billed_micros(e, events) for e in events)


def _billed_micros(event: Event, events: list[Event]) -> int:
    """What the provider billed for one node."""
    if not isinstance(event, NodeLaunched):
        return 0
    end = next(e for e in events if isinstance(e, NodeEnded) and e.node_id == event.node_id)
    milliseconds = round((end.ended_at - event.launched_at).total_seconds() * 1000)
    return event.micros_per_hour * milliseconds // 3_600_000


def _overlap_s(events: list[Event]) -> float:
    """Seconds during which more than one node of the one-node job was there."""
    spans = []
    for event in events:
        if isinstance(event, NodeLaunched):
            end = next(e for e in events if isinstance(e, NodeEnded) and e.node_id == event.node_id)
            spans.append((event.launched_at, end.ended_at))
    spans.sort()
    pairs = pairwise(spans)
    return sum(max(0.0, (a[1] - b[0]).total_seconds()) for a, b in pairs)


def _scene(steps: int | None, *, where: str, effective: bool) -> tuple[Scene, VirtualClock]:
    fuse, idle = Fuse(steps), Fuse(None)
    clock = VirtualClock(_task().start_at)
    ledger = CrashingLedger(fuse if where == "ledger" else idle, effective)
    provider = FaultyProvider(
        clock, _task(), idle if where == "ledger" else fuse, effective, where == "reply"
    )
    return Scene(fuse, ledger, provider), clock


def _every_crash(where: str, effective: bool) -> int:
    for steps in crash_points(range(1, 2000)):
        scene, clock = _scene(steps, where=where, effective=effective)
        lives = _run(scene, clock)
        _check(scene)
        if not scene.fuse.burnt:
            return steps - 1
        if where != "reply":
            assert lives == 2
    raise AssertionError("the run never outlasted the fuse")


@pytest.mark.parametrize("durable", [False, True], ids=["lost", "durable"])
def test_killed_at_every_write_to_the_ledger(durable: bool) -> None:
    assert _every_crash("ledger", durable) > 30


@pytest.mark.parametrize("effective", [False, True], ids=["before", "after"])
def test_killed_at_every_call_of_the_provider(effective: bool) -> None:
    assert _every_crash("provider", effective) > 5


@pytest.mark.parametrize("effective", [False, True], ids=["not done", "done"])
def test_every_call_of_the_provider_unanswered(effective: bool) -> None:
    assert _every_crash("reply", effective) > 5


def test_one_node_at_a_time_without_faults() -> None:
    scene, clock = _scene(None, where="ledger", effective=True)
    assert _run(scene, clock) == 1
    _check(scene)
    overlap_s = _overlap_s([r.event for r in scene.ledger.events("task")])
    assert overlap_s <= 20.0 * 10, "only drains may overlap with the next node"
