"""Jobs come, wait, go on and go; daemons come and go too."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from costopt.catalog import load_catalog
from costopt.daemon.loop.scheduler import TaskScheduler
from costopt.daemon.reader import TenantReader
from costopt.daemon.settings import TaskInterval
from costopt.daemon.watch.metrics_snapshot import collect_metrics
from costopt.domain.account import Account, AccountGuards
from costopt.domain.control import DesiredState, Mode
from costopt.domain.errors import SpecError
from costopt.domain.events import JobFinished, LaunchIntended, NodeLaunched, WorkLost
from costopt.domain.fleet import LaunchRequest
from costopt.domain.policy import CarbonSignal
from costopt.ledger.summary import JobState
from costopt.strategies.shield import slack_s
from tests.support.daemon_fixtures import POLICY, DaemonScene, document
from tests.support.engine_fixtures import SPOT_A
from tests.support.errors import has_code
from tests.support.live_run import wait_until

pytestmark = pytest.mark.process


def test_jobs_run_to_their_end_and_stay_listed(scene: DaemonScene) -> None:
    scene.submit("one", "two", hours=1.0)
    scene.go(100)
    states = {s.submission.name: s.summary.state for s in scene.reader.jobs()}
    assert states == {"one": JobState.FINISHED, "two": JobState.FINISHED}
    assert scene.living() == scene.living("two") == []
    scene.restart()
    scene.go(2)
    assert scene.job().summary.usd > 0
    assert scene.job().summary.state is JobState.FINISHED
    metrics = collect_metrics(scene.daemon.service)
    assert metrics.launches == {"ok": 2, "failed": 0}
    assert metrics.tick_count == 2


def test_slack_is_of_the_last_tick_and_not_of_the_last_decision(scene: DaemonScene) -> None:
    scene.submit("one", hours=1.0)
    scene.go(5)
    decided = scene.job().decision
    assert decided is not None
    scene.go(20)
    status = scene.job()
    assert status.decision == decided
    (view,) = (v for v in scene.daemon.board.snapshot.views if v.jobs)
    assert status.slack_s == slack_s(view, view.jobs[0])
    assert status.slack_s != decided.slack_s


def test_a_submission_does_not_wait_for_the_next_tick(scene: DaemonScene) -> None:
    daemon = scene.daemon
    tasks = [
        replace(task, interval=TaskInterval(3600.0 if task.name == "tick" else 0.02))
        for task in daemon.tasks()
        if task.name in ("tick", "readiness")
    ]
    schedule = TaskScheduler(tasks, daemon.board, None)
    schedule.start()
    wait_until(lambda: daemon.board.tick_count == 1, "first tick")
    scene.submit("one")

    def has_started() -> bool:
        daemon.hasten(schedule)
        return bool(scene.living())

    wait_until(has_started, "node")
    schedule.stop()


def test_every_job_counts_carbon_by_its_policy_s_signal(scene: DaemonScene) -> None:
    marginal = POLICY.replace("plain", "marginal") + "objective: {carbon_signal: marginal}\n"
    scene.submit("one")
    scene.submit("two", policy=marginal)
    scene.go(10)
    region = load_catalog().region(SPOT_A.provider, SPOT_A.region)
    assert region is not None
    (one,), (two,) = scene.events(NodeLaunched), scene.events(NodeLaunched, "two")
    assert one.gco2e_per_kwh == region.average_gco2e_per_kwh
    assert two.gco2e_per_kwh == region.marginal_gco2e_per_kwh
    assert (one.carbon_signal, two.carbon_signal) == (CarbonSignal.AVERAGE, CarbonSignal.MARGINAL)


def test_a_daemon_that_comes_back_goes_on(scene: DaemonScene) -> None:
    scene.submit("one")
    scene.go(60)
    scene.restart()
    scene.go(250)
    assert len(scene.events(NodeLaunched)) == 1
    assert len(scene.events(JobFinished)) == 1
    assert scene.events(WorkLost) == []


def test_a_paused_job_has_no_nodes_and_goes_on_when_it_is_resumed(scene: DaemonScene) -> None:
    scene.submit("one")
    scene.go(60)
    scene.daemon.service.pause("one", "me")
    scene.go(10)
    assert scene.living() == []
    assert scene.job().blocked_by == "paused"
    assert scene.job().submission.desired_state is DesiredState.PAUSED
    scene.restart()
    scene.go(10)
    assert scene.living() == []
    scene.daemon.service.resume("one", "me")
    scene.go(300)
    assert len(scene.events(JobFinished)) == 1
    assert scene.events(WorkLost) == []


def test_a_job_that_has_finished_is_neither_paused_nor_cancelled(scene: DaemonScene) -> None:
    scene.submit("one")
    scene.go(300)
    assert scene.job().summary.state is JobState.FINISHED
    service = scene.daemon.service
    for change in (service.pause, service.resume, service.cancel):
        with pytest.raises(SpecError, check=has_code("finished")):
            change("one", "me")
    with pytest.raises(SpecError, check=has_code("finished")):
        service.reprioritize("one", 5, "me")
    assert scene.job().submission.desired_state is DesiredState.RUN


def test_a_cancelled_job_drains_and_never_runs_again(scene: DaemonScene) -> None:
    scene.submit("one")
    scene.go(60)
    scene.daemon.service.cancel("one", "me")
    scene.go(10)
    assert scene.living() == []
    assert scene.job().summary.state is JobState.STOPPED
    assert scene.job().summary.saved_units > 0
    with pytest.raises(SpecError, check=has_code("cancelled")):
        scene.daemon.service.resume("one", "me")


@pytest.mark.parametrize("minutes", [0, 30], ids=["at once", "once it is let go"])
def test_a_job_that_failed_tries_again_when_it_is_resumed(scene: DaemonScene, minutes: int) -> None:
    scene.submit("one")
    scene.go(60)
    scene.runtime.failing.add("one")
    scene.go(1)
    assert scene.job().summary.state is JobState.FAILED
    assert scene.job().summary.failure
    assert scene.reader.alerts()[-1].kind == "failed"
    scene.go(minutes)
    scene.runtime.failing.clear()
    scene.daemon.service.resume("one", "me")
    scene.go(300)
    assert scene.retried == ["one"]
    assert scene.job().summary.state is JobState.FINISHED
    assert len(scene.events(JobFinished)) == 1
    assert scene.living() == []


def test_nothing_is_launched_before_a_job_is_ready(scene: DaemonScene) -> None:
    scene.unready["one"] = "the store refused"
    scene.submit("one")
    scene.go(5)
    assert scene.cloud.requests == []
    assert scene.job().blocked_by == "the store refused"


def test_priorities_reach_the_engine(tmp_path: Path) -> None:
    scene = DaemonScene(tmp_path, Account(guards=AccountGuards(max_nodes=1)))
    scene.submit("one", "two")
    scene.go(20)
    assert [len(scene.living(name)) for name in ("one", "two")] == [1, 0]
    assert scene.job("two").blocked_by
    assert scene.job("one").blocked_by == ""
    scene.daemon.service.reprioritize("two", 5, "me")
    scene.go(20)
    assert [len(scene.living(name)) for name in ("one", "two")] == [0, 1]
    scene.close()


@pytest.mark.parametrize(
    ("text", "policy", "said"),
    [
        ("kind: job\nversion: 1\n", "cheapest", "name"),
        (document() + "surprise: 1\n", "cheapest", "surprise"),
        (document(), "dearest", "'dearest'"),
        (document(), "kind: policy\nversion: 1\nname: x\nwrong: 1\n", "wrong"),
    ],
)
def test_what_cannot_be_read_is_refused(
    scene: DaemonScene, text: str, policy: str, said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        scene.daemon.service.submit(
            scene.daemon.service.read(text, policy, workdir=str(scene.folder), who="me")
        )
    assert scene.reader.jobs() == ()


def test_a_name_is_given_once(scene: DaemonScene) -> None:
    scene.submit("one")
    with pytest.raises(SpecError, match="one"):
        scene.submit("one")


def test_a_second_daemon_stands_by(scene: DaemonScene) -> None:
    scene.submit("one")
    scene.go(2)
    first, second = scene.daemon, scene.start()
    second.tick()
    health = TenantReader(second.service).health()
    assert (health.leads, health.alive, health.ready) == (False, True, False)
    assert len(health.problems) == 1
    assert len(scene.events(LaunchIntended)) == 1
    first.close()
    second.lead()
    scene.daemon = second
    scene.go(60)
    assert TenantReader(second.service).health().leads
    assert len(scene.events(LaunchIntended)) == 1
    assert scene.job().summary.state is JobState.TRAINING


def test_a_daemon_that_leads_again_knows_what_another_did_meanwhile(scene: DaemonScene) -> None:
    scene.submit("one")
    scene.go(2)
    first, second = scene.daemon, scene.start()
    first._leadership.release()
    second.lead()
    scene.daemon = second
    scene.daemon.service.pause("one", "me")
    scene.go(10)
    assert scene.living() == []
    scene.daemon.service.resume("one", "me")
    scene.go(5)
    assert len(scene.living()) == 1
    second._leadership.release()
    first.lead()
    scene.daemon = first
    scene.go(60)
    assert len(scene.events(NodeLaunched)) == 2
    assert len(scene.living()) == 1
    assert TenantReader(first.service).job("one").summary.state is JobState.TRAINING
    second.close()


def test_orphans_are_released_where_the_daemon_enforces(scene: DaemonScene) -> None:
    scene.submit("one")
    scene.go(2)
    stray = LaunchRequest("costopt", "lost", SPOT_A, 1, "lost-1")
    foreign = replace(stray, owner="others", key="others-1")
    (orphan,) = scene.cloud.inner.launch(stray)
    scene.cloud.inner.launch(foreign)
    scene.go(5)
    scene.daemon.sweep()
    assert len(scene.living("lost")) == 1, "it is too young"
    scene.go(10)
    scene.daemon.service.set_mode(Mode.OBSERVE, "me")
    scene.daemon.sweep()
    assert len(scene.living("lost")) == 1
    (reported,) = scene.reader.fleet().orphans
    assert orphan.node_id in reported
    assert "'lost'" in reported
    scene.daemon.service.set_mode(Mode.ENFORCE, "me")
    scene.daemon.sweep()
    assert scene.living("lost") == []
    assert scene.reader.fleet().orphans == ()
    assert len(scene.living("one")) == 1
    others = scene.cloud.inner.nodes("others")
    assert [node.state.is_alive for node in others] == [True]


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ("max_nodes: 1", "guard max_nodes: "),
        ("max_usd_per_hour: 1.5", "guard max_usd_per_hour: "),
        ("max_launches_per_hour: 1", "guard max_launches_per_hour: "),
    ],
)
def test_a_job_whose_launch_a_guard_refuses_says_so_for_as_long_as_it_does(
    scene: DaemonScene, limit: str, why: str
) -> None:
    scene.submit("one", "two", hours=1.0, policy=f"{POLICY}limits: {{{limit}}}\n")
    scene.go(20)
    assert len(scene.living("one")) == 1
    assert scene.job("one").blocked_by == ""
    assert scene.job("two").blocked_by.startswith(why)
    scene.go(60)
    assert len(scene.living("two")) == 1
    assert scene.job("two").blocked_by == ""


def test_a_guard_is_on_where_the_account_names_none(scene: DaemonScene) -> None:
    for number in range(4):
        text = document(f"job{number}", nodes=20)
        scene.daemon.service.submit(
            scene.daemon.service.read(text, POLICY, workdir=str(scene.folder), who="me")
        )
    scene.cloud.silent.add("launch")
    scene.go(3)
    held = [s.blocked_by for s in scene.reader.jobs()]
    assert sum(why != "" for why in held) == 1


def test_a_failing_ledger_is_reported_and_survived(scene: DaemonScene) -> None:
    scene.submit("one")
    scene.go(2)
    assert scene.reader.health().ready
    scene.ledger.close()
    scene.daemon.tick()
    health = scene.reader.health()
    assert not health.ready
    assert scene.said
    assert [a.kind for a in scene.reader.alerts()] == ["tick"]
    scene.restart()
    scene.go(2)
    assert scene.reader.health().ready


def test_a_silent_provider_is_named(scene: DaemonScene) -> None:
    scene.submit("one")
    scene.go(5)
    scene.cloud.silent |= {"offers", "nodes", "notices"}
    scene.go(2)
    assert scene.reader.market().provider_errors == {"aws": "offers: no answer"}
    assert len(scene.job().nodes) == 1, "what was known is still there"
    scene.cloud.silent.clear()
    scene.go(1)
    assert scene.reader.market().provider_errors == {}


def test_figures_of_fleet_and_market(scene: DaemonScene) -> None:
    scene.submit("one")
    scene.go(10)
    fleet = scene.reader.fleet()
    assert [(n.job, n.pool) for n in fleet.nodes] == [("one", str(SPOT_A))]
    assert fleet.usd_per_hour == 1.0
    market = scene.reader.market()
    assert {str(r.offer.pool): r.price_age_s for r in market.rows}[str(SPOT_A)] == 0.0
    (row,) = scene.reader.decisions()
    assert scene.reader.decision(row.decision.decision_id).decision == row.decision
    assert next(scene.reader.decisions("one")).decision == row.decision
    shutil.rmtree(scene.folder / "learned")
