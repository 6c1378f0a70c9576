"""Whether a job that is handed in can end in time, without holding up a tick."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from costopt.daemon.intake import admission
from costopt.daemon.intake.admission import AdmissionResult
from costopt.domain.account import Account, AccountGuards, Quota
from costopt.domain.errors import InfeasibleError, SolverError
from costopt.domain.plan import Plan
from tests.support.daemon_fixtures import POLICY, DaemonScene, document
from tests.support.live_run import PATIENCE_S


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[DaemonScene]:
    made = DaemonScene(tmp_path, Account(guards=AccountGuards(max_nodes=2)))
    yield made
    made.close()


def verdict(scene: DaemonScene, hours: float = 4.0, nodes: int = 1) -> AdmissionResult:
    service, text = scene.daemon.service, document("new", hours=hours, nodes=nodes)
    read = service.read(text, POLICY, workdir=str(scene.folder), who="me", priority=0)
    return service.planner.check(read)


def test_before_the_first_tick_nothing_is_known(scene: DaemonScene) -> None:
    assert verdict(scene).finish_at is None
    assert verdict(scene).why


def test_a_job_that_can_end_in_time_is_reported_when_and_for_what(scene: DaemonScene) -> None:
    scene.go(1)
    reported = verdict(scene)
    assert reported.in_time
    assert reported.finish_at is not None
    assert 4 < (reported.finish_at - scene.clock.now()).total_seconds() / 3600 < 9
    assert reported.usd is not None
    assert 4.0 < reported.usd < 13.0


@pytest.mark.parametrize(
    ("hours", "nodes", "binds"),
    [(150.0, 1, "deadline: "), (4.0, 3, "quota: ")],
)
def test_a_job_that_cannot_is_refused_with_what_binds(
    scene: DaemonScene, hours: float, nodes: int, binds: str
) -> None:
    scene.go(1)
    with pytest.raises(InfeasibleError, match=f"new .*: {binds}"):
        verdict(scene, hours, nodes)


def test_a_job_without_a_deadline_is_never_late(scene: DaemonScene) -> None:
    scene.go(1)
    text = document("new").replace("deadline: 100h", "value: {usd_per_hour_waited: 1000}")
    read = scene.daemon.service.read(text, POLICY, workdir="", who="me", priority=0)
    scene.clock.sleep(300.0)
    scene.go(1)
    reported = scene.daemon.service.planner.check(read)
    assert reported.in_time, reported.why
    assert reported.finish_at is not None


def test_quotas_that_the_clouds_tell_bind(scene: DaemonScene) -> None:
    scene.go(1)
    scene.daemon.board.quotas = (Quota("told by the cloud", max_gpus=1),)
    with pytest.raises(InfeasibleError, match="quota: told by the cloud"):
        verdict(scene, nodes=2)


def test_a_solver_that_fails_refuses_nothing(
    scene: DaemonScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> Plan:
        raise SolverError("out of memory")

    scene.go(1)
    monkeypatch.setattr(admission, "plan", fail)
    assert verdict(scene) == AdmissionResult(None, "out of memory")


@pytest.mark.process
def test_ticks_go_on_while_a_job_is_planned(
    scene: DaemonScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    planning, end = Event(), Event()

    def wait(*_: object, **__: object) -> Plan:
        planning.set()
        assert end.wait(PATIENCE_S)
        raise SolverError("told to end")

    scene.go(1)
    monkeypatch.setattr(admission, "plan", wait)
    monkeypatch.setattr(admission, "LOCK_TIMEOUT_S", 0.01)
    reported: list[AdmissionResult] = []
    asking = Thread(target=lambda: reported.append(verdict(scene)))
    asking.start()
    try:
        assert planning.wait(PATIENCE_S)
        scene.submit("one")
        scene.go(5)
        assert len(scene.living("one")) == 1
        assert verdict(scene).finish_at is None
        assert verdict(scene).why
    finally:
        end.set()
        asking.join(PATIENCE_S)
    assert [each.why for each in reported] == ["told to end"]
