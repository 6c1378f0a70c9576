"""How far the daemon goes by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from costopt.daemon.loop.mode_gate import ModeGate
from costopt.domain.control import ActionKind, Mode, ProposalState
from costopt.domain.events import (
    ActionProposed,
    DrainIntended,
    GuardTripped,
    JobFinished,
    LaunchesAllowed,
    LaunchesHalted,
    LaunchIntended,
    ModeChanged,
    NodeEnded,
)
from tests.support.daemon_fixtures import DaemonScene
from tests.support.engine_fixtures import SPOT_A

pytestmark = pytest.mark.process


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[DaemonScene]:
    made = DaemonScene(tmp_path, mode=Mode.OBSERVE)
    made.submit("one")
    yield made
    made.close()


def _mode(scene: DaemonScene, mode: Mode) -> None:
    scene.daemon.service.set_mode(mode, "me")


def test_it_observes_unless_it_is_reported_otherwise(scene: DaemonScene) -> None:
    scene.go(30)
    assert scene.cloud.requests == []
    assert scene.events(LaunchIntended) == []
    (proposed,) = scene.events(ActionProposed)
    assert (proposed.action, proposed.nodes, proposed.mode) == ("launch", 1, "observe")
    assert proposed.micros_per_hour == 1_000_000
    assert proposed.reason == scene.job().decision.reason  # type: ignore[union-attr]
    assert scene.reader.proposals() == ()


def test_a_switch_of_mode_is_an_event(scene: DaemonScene) -> None:
    scene.go(2)
    _mode(scene, Mode.ENFORCE)
    scene.go(2)
    assert [e.mode for e in scene.events(ModeChanged)] == ["observe", "enforce"]
    scene.restart()
    scene.go(2)
    assert len(scene.events(ModeChanged)) == 2
    changes = [change for _, change in scene.registry.changes()]
    assert [each.detail for each in changes if each.what == "mode"] == ["enforce"]


def test_what_is_recommended_happens_once_it_is_approved(scene: DaemonScene) -> None:
    _mode(scene, Mode.RECOMMEND)
    scene.go(10)
    assert scene.cloud.requests == []
    (asked,) = scene.reader.proposals([ProposalState.OPEN])
    assert (asked.kind, asked.nodes, asked.usd_per_hour) == (ActionKind.LAUNCH, 1, 1.0)
    scene.daemon.service.approve(asked.id, "me")
    scene.go(2)
    assert len(scene.cloud.requests) == 1
    (done,) = scene.reader.proposals([ProposalState.EXECUTED])
    assert done.id == asked.id
    scene.go(300)
    assert len(scene.events(JobFinished)) == 1
    assert scene.living() == [], "that the nodes of a job that is over are given back needs no yes"


def test_an_approval_that_a_guard_refuses_says_so(scene: DaemonScene) -> None:
    _mode(scene, Mode.RECOMMEND)
    scene.go(2)
    (asked,) = scene.reader.proposals([ProposalState.OPEN])
    scene.daemon.service.approve(asked.id, "me")
    scene.daemon.service.halt("too dear", "ann")
    scene.go(2)
    (refused,) = scene.reader.proposals([ProposalState.REFUSED])
    assert (refused.id, refused.answered_by) == (asked.id, "costopt")
    assert re.fullmatch(r"guard halt: .*\bann\b.*: too dear", refused.outcome)
    assert scene.cloud.requests == []
    (again,) = scene.reader.proposals([ProposalState.OPEN])
    scene.daemon.service.unhalt("ann")
    scene.go(2)
    assert scene.cloud.requests == [], "the old approval is used up"
    scene.daemon.service.approve(again.id, "me")
    scene.go(2)
    assert [p.id for p in scene.reader.proposals([ProposalState.EXECUTED])] == [again.id]


def test_an_approval_that_the_provider_refuses_says_so(scene: DaemonScene) -> None:
    _mode(scene, Mode.RECOMMEND)
    scene.go(2)
    (asked,) = scene.reader.proposals([ProposalState.OPEN])
    scene.cloud.refusing.add(SPOT_A)
    scene.daemon.service.approve(asked.id, "me")
    scene.go(1)
    (refused,) = scene.reader.proposals([ProposalState.REFUSED])
    assert (refused.id, refused.outcome) == (asked.id, f"NoCapacity: {SPOT_A}: none left")


def test_an_approval_whose_answer_was_lost_is_executed(scene: DaemonScene) -> None:
    _mode(scene, Mode.RECOMMEND)
    scene.go(2)
    (asked,) = scene.reader.proposals([ProposalState.OPEN])
    scene.daemon.service.approve(asked.id, "me")
    scene.cloud.silent.add("launch")
    scene.go(1)
    assert [p.state for p in scene.reader.proposals()] == [ProposalState.EXECUTED]
    scene.cloud.silent.clear()
    scene.go(2)
    assert len(scene.living()) == 1
    assert [p.state for p in scene.reader.proposals()] == [ProposalState.EXECUTED]


def test_an_approval_of_which_a_daemon_died_is_executed_once(
    scene: DaemonScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    _mode(scene, Mode.RECOMMEND)
    scene.go(2)
    (asked,) = scene.reader.proposals([ProposalState.OPEN])
    scene.daemon.service.approve(asked.id, "me")
    with monkeypatch.context() as patch:
        patch.setattr(ModeGate, "settle", _die)
        with pytest.raises(SystemExit):
            scene.go(1)
    scene.restart()
    scene.go(3)
    assert [p.state for p in scene.reader.proposals()] == [ProposalState.EXECUTED]
    assert len(scene.cloud.requests) == 1


def _die(*_: object) -> None:
    raise SystemExit


def test_what_was_rejected_is_not_asked_again_for_a_while(scene: DaemonScene) -> None:
    _mode(scene, Mode.RECOMMEND)
    scene.go(2)
    (asked,) = scene.reader.proposals([ProposalState.OPEN])
    scene.daemon.service.reject(asked.id, "me")
    scene.go(30)
    assert scene.reader.proposals([ProposalState.OPEN]) == ()
    scene.go(40)
    (again,) = scene.reader.proposals([ProposalState.OPEN])
    assert again.id != asked.id
    assert scene.cloud.requests == []


def test_a_proposal_that_is_no_longer_wanted_is_withdrawn(scene: DaemonScene) -> None:
    _mode(scene, Mode.RECOMMEND)
    scene.go(2)
    scene.daemon.service.pause("one", "me")
    scene.go(2)
    assert [p.state for p in scene.reader.proposals()] == [ProposalState.WITHDRAWN]


def test_nothing_is_done_to_what_runs_once_it_only_observes(scene: DaemonScene) -> None:
    _mode(scene, Mode.ENFORCE)
    scene.go(20)
    (node,) = scene.living()
    _mode(scene, Mode.OBSERVE)
    scene.go(1)
    scene.daemon.service.cancel("one", "me")
    scene.go(30)
    assert scene.living() == [node]
    assert scene.events(DrainIntended) == []
    assert [p.action for p in scene.events(ActionProposed)] == ["drain"]
    _mode(scene, Mode.ENFORCE)
    scene.go(10)
    assert scene.living() == []
    assert len(scene.events(NodeEnded)) == 1


def test_a_halt_that_is_given_another_reason_shows_it(scene: DaemonScene) -> None:
    for reason, who in [("too dear", "ann"), ("too dear", "ann"), ("keys are stolen", "bob")]:
        scene.daemon.service.halt(reason, who)
        scene.go(2)
    assert [e.reason for e in scene.events(LaunchesHalted)] == ["too dear", "keys are stolen"]
    assert scene.reader.fleet().halt == scene.daemon.service.registry.halted()
    said = [alert.message for alert in scene.reader.alerts()]
    assert [(text.split()[0], text.rpartition(": ")[2]) for text in said] == [
        ("ann", "too dear"),
        ("bob", "keys are stolen"),
    ]
    scene.daemon.service.unhalt("ann")
    scene.go(2)
    assert len(scene.events(LaunchesAllowed)) == 1


def test_a_halt_stops_launches_at_once_and_nothing_else(scene: DaemonScene) -> None:
    _mode(scene, Mode.ENFORCE)
    scene.go(20)
    scene.daemon.service.halt("too dear", "ann")
    scene.submit("two")
    scene.go(300)
    assert scene.living("two") == []
    assert len(scene.events(JobFinished)) == 1, "what ran went on"
    (halted,) = scene.events(LaunchesHalted, "two")
    assert (halted.reason, halted.who) == ("too dear", "ann")
    assert [e.guard for e in scene.events(GuardTripped, "two")] == ["halt"]
    assert [a.kind for a in scene.reader.alerts()] == ["halt"]
    assert re.fullmatch(r"guard halt: .*\bann\b.*: too dear", scene.job("two").blocked_by)
    scene.restart()
    scene.go(5)
    assert scene.living("two") == [], "a halt outlives the daemon"
    scene.daemon.service.unhalt("ann")
    scene.go(5)
    assert len(scene.living("two")) == 1
    assert scene.job("two").blocked_by == ""
    assert len(scene.events(LaunchesAllowed, "two")) == 1
