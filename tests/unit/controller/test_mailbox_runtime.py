"""What the controller makes of the letters in the mailbox."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import costopt.controller.runtime as runtime_module
import costopt.protocol.mailbox as mailbox_module
from costopt.checkpoint.identity import JobIdentity
from costopt.controller.runtime import MailboxRuntime
from costopt.domain.errors import StoreError
from costopt.domain.fleet import Node, NodeState
from costopt.domain.job import CheckpointSpec, Job, Phase, Resources, WorkAmount, WorkUnit
from costopt.domain.market import InstanceType, Pool
from costopt.domain.power import PowerCap
from costopt.domain.progress import GangState
from costopt.domain.runtime import PowerLimitRecord
from costopt.domain.throughput import Throughput
from costopt.protocol.mailbox import Mailbox
from costopt.protocol.messages import CommandFailure, Heartbeat, NodeActivity, NodeMeasurement
from costopt.protocol.trainer_files import RejectedCheckpoint, SavedCheckpoint
from costopt.store.folder import FileStore
from tests.support.errors import has_code
from tests.support.manual_clock import ManualClock
from tests.support.optimize_fixtures import machine

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SPEED = 60.0
JOB = Job(
    name="j",
    work=WorkAmount(1000, WorkUnit.STEPS),
    start_at=NOW,
    deadline_at=NOW + timedelta(hours=5),
    resources=Resources(),
    throughput=Throughput(),
    checkpoint=CheckpointSpec("/checkpoints", save_s=30, restore_s=60),
    phases=(Phase("all", 1.0, 1, 4),),
    run=("python", "train.py"),
    startup_s=120,
)
BEAT = Heartbeat("n1", 1, NodeActivity.TRAINING, at=0.0, beat=1, reported=True)


class Still:
    """A clock that stands."""

    def now(self) -> datetime:
        return NOW

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody waits here")


def node(node_id: str) -> Node:
    pool = Pool.parse("sim/r/z/t/spot")
    return Node(node_id, "o", "j", pool, "k", NodeState.RUNNING, NOW, 1.0)


class Machines:
    """A catalog in which every pool has this machine."""

    def instance_type(self, pool: Pool) -> InstanceType | None:
        return machine()


class Desk:
    """A runtime, and the agents' side of its mailbox."""

    def __init__(self, folder: Path, clock: ManualClock) -> None:
        self.clock = clock
        store = FileStore(folder)
        self.mailbox = Mailbox(store, "j")
        self.runtime = MailboxRuntime(store, Still(), speed=SPEED, silent_s=60.0)
        self.runtime.form_gang(JOB, 1, (node("n1"), node("n2")), 600.0)

    def say(self, **changes: object) -> None:
        beat = replace(BEAT, at=self.clock.now_s, **changes)  # type: ignore[arg-type]
        self.mailbox.post_heartbeat(beat)

    def state(self) -> GangState:
        return self.runtime.progress(JOB, NOW).state


def test_a_gang_names_the_job_as_its_checkpoints_do(tmp_path: Path) -> None:
    job = replace(JOB, tenant="research")
    for folder, owner, expected in (
        ("with", "acme", JobIdentity("acme", "research", "j")),
        ("without", "", None),
    ):
        store = FileStore(tmp_path / folder)
        runtime = MailboxRuntime(store, Still(), owner=owner)
        runtime.form_gang(job, 1, (node("n1"),), 600.0)
        gang = Mailbox(store, "j").gang()
        assert gang is not None
        assert gang.identity == expected


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    return ManualClock(monkeypatch, runtime_module)


@pytest.fixture
def desk(tmp_path: Path, clock: ManualClock) -> Desk:
    return Desk(tmp_path, clock)


def test_a_job_never_heard_of_has_done_nothing(tmp_path: Path) -> None:
    progress = MailboxRuntime(FileStore(tmp_path), Still()).progress(JOB, NOW)
    assert progress.state is GangState.IDLE
    assert progress.done_units == progress.saved_units == 0


def test_a_gang_starts_until_every_member_trains(desk: Desk) -> None:
    progress = desk.runtime.progress(JOB, NOW)
    assert progress.state is GangState.STARTING
    assert progress.starting_until == NOW + timedelta(seconds=JOB.overhead_s)
    desk.say(node_id="n1")
    assert desk.state() is GangState.STARTING
    desk.say(node_id="n2")
    assert desk.state() is GangState.TRAINING


def test_speeds_are_reported_in_the_jobs_time(desk: Desk) -> None:
    assert desk.runtime.progress(JOB, NOW).resumed_units is None
    reported = {
        "done_units": 300.0,
        "saved_units": 200.0,
        "units_per_s": 30.0,
        "resumed_units": 250.0,
    }
    for node_id in ("n1", "n2"):
        desk.say(node_id=node_id, **reported)
    progress = desk.runtime.progress(JOB, NOW)
    assert progress.measured_units_per_s == pytest.approx(0.5)
    assert (progress.done_units, progress.saved_units) == (300.0, 200.0)
    assert progress.resumed_units == 250.0


def test_reports_of_another_generation_are_not_believed(desk: Desk) -> None:
    for node_id in ("n1", "n2"):
        desk.say(node_id=node_id, done_units=300.0, saved_units=200.0)
    desk.runtime.form_gang(JOB, 2, (node("n1"), node("n2")), 600.0)
    progress = desk.runtime.progress(JOB, NOW)
    assert progress.state is GangState.STARTING
    assert progress.done_units == 0.0


def test_an_older_generation_forms_nothing(desk: Desk) -> None:
    desk.runtime.form_gang(JOB, 5, (node("n1"),), 600.0)
    desk.runtime.form_gang(JOB, 4, (node("n2"),), 600.0)
    gang = desk.mailbox.gang()
    assert gang is not None
    assert (gang.generation, gang.members) == (5, ("n1",))


def test_a_broken_gang_keeps_only_what_is_saved(desk: Desk) -> None:
    desk.say(node_id="n1", done_units=300.0, saved_units=200.0, state=NodeActivity.BROKEN)
    progress = desk.runtime.progress(JOB, NOW)
    assert progress.state is GangState.IDLE
    assert progress.done_units == progress.saved_units == 200.0


def test_a_member_that_becomes_unreachable_breaks_the_gang(desk: Desk) -> None:
    for node_id in ("n1", "n2"):
        desk.say(node_id=node_id)
    assert desk.state() is GangState.TRAINING
    desk.clock.now_s += 61
    desk.say(node_id="n1", beat=2)
    progress = desk.runtime.progress(JOB, NOW)
    assert progress.state is GangState.IDLE
    assert progress.message == "no heartbeat from n2"


def test_a_member_that_has_yet_to_join_a_generation_does_not_break_it(desk: Desk) -> None:
    """Its agent may wait for a trainer that hangs: another generation would wait as well."""
    for node_id in ("n1", "n2"):
        desk.say(node_id=node_id)
    assert desk.state() is GangState.TRAINING
    desk.clock.now_s += 61
    desk.say(node_id="n1", beat=2)
    assert desk.state() is GangState.IDLE
    desk.runtime.form_gang(JOB, 2, (node("n1"), node("n2")), 600.0)
    for beat in range(3, 80):
        desk.clock.now_s += 10
        desk.say(node_id="n1", beat=beat, generation=2, state=NodeActivity.STARTING)
        assert desk.state() is GangState.STARTING
    assert desk.runtime.progress(JOB, NOW).message == "waits for n2"
    desk.say(node_id="n2", beat=2, generation=2)
    desk.say(node_id="n1", beat=80, generation=2)
    assert desk.state() is GangState.TRAINING


def test_how_long_a_node_has_been_unreachable_is_in_the_jobs_time(desk: Desk) -> None:
    desk.say(node_id="n1")
    desk.say(node_id="n2")
    asked = ("n1", "n2", "n3")
    assert desk.state() is GangState.TRAINING
    assert desk.runtime.unreachable_s(JOB, asked) == {}
    desk.clock.now_s += 61
    desk.say(node_id="n2", beat=2)
    assert desk.runtime.unreachable_s(JOB, asked) == {"n1": 61 * SPEED}
    desk.say(node_id="n1", beat=2)
    assert desk.runtime.unreachable_s(JOB, asked) == {}


def test_finished_needs_all_the_work_saved(desk: Desk) -> None:
    desk.say(node_id="n1", state=NodeActivity.FINISHED, done_units=1000.0, saved_units=900.0)
    assert desk.state() is not GangState.FINISHED
    desk.say(node_id="n1", state=NodeActivity.FINISHED, done_units=1000.0, saved_units=1000.0)
    assert desk.state() is GangState.FINISHED


def test_a_gang_that_finished_without_saving_all_its_work_has_failed(desk: Desk) -> None:
    for node_id in ("n1", "n2"):
        assert desk.state() is not GangState.FAILED, "another member may still save"
        desk.say(node_id=node_id, state=NodeActivity.FINISHED, done_units=1000.0, saved_units=900.0)
    assert desk.state() is GangState.FAILED
    assert "900 of 1000 steps" in desk.runtime.progress(JOB, NOW).message


def fail(desk: Desk, generation: int, saved_units: float) -> GangState:
    desk.runtime.form_gang(JOB, generation, (node("n1"),), 600.0)
    failure = CommandFailure("n1", generation, 1, 0.0, saved_units, "ValueError: x", "/log")
    desk.mailbox.post_failure(failure)
    desk.say(node_id="n1", generation=generation, state=NodeActivity.FAILED)
    return desk.state()


def test_the_third_failure_at_one_point_is_final(desk: Desk) -> None:
    assert [fail(desk, generation, 100.0) for generation in (1, 2, 3)] == [
        GangState.IDLE,
        GangState.IDLE,
        GangState.FAILED,
    ]
    message = desk.runtime.progress(JOB, NOW).message
    assert "exited with 1 on node n1" in message
    assert "3 times at the same point" in message
    assert "ValueError: x" in message
    assert "/log" in message


def test_progress_between_failures_forgives_them(desk: Desk) -> None:
    states = [fail(desk, generation, 100.0 * generation) for generation in (1, 2, 3, 4)]
    assert set(states) == {GangState.IDLE}


def test_checkpoints_and_refusals(desk: Desk) -> None:
    for units in (100.0, 200.0, 300.0):
        desk.mailbox.post_checkpoint(
            SavedCheckpoint(f"step-{units:g}", units, "/c", desk.clock.now_s - 1, 10, 0.5)
        )
    records = desk.runtime.checkpoints(JOB, 100.0)
    assert [record.units for record in records] == [200.0, 300.0]
    assert records[0].save_s == 30.0
    assert records[0].committed_at == NOW - timedelta(seconds=SPEED)
    desk.mailbox.post_rejected_checkpoint(RejectedCheckpoint("step-300", "/c", "torn"))
    assert desk.runtime.progress(JOB, NOW).saved_units == 200.0
    assert [(r.uri, r.message) for r in desk.runtime.rejected_checkpoints(JOB)] == [("/c", "torn")]


def test_a_node_that_was_never_heard_of_is_drained_once_it_is_silent(desk: Desk) -> None:
    desk.runtime.drain(JOB, ["n1", "n2"])
    assert desk.runtime.is_drained(JOB) == frozenset()
    desk.clock.now_s += 59
    desk.say(node_id="n1")
    assert desk.runtime.is_drained(JOB) == frozenset()
    desk.clock.now_s += 2
    assert desk.runtime.is_drained(JOB) == {"n2"}, "n1 has just begun: it may save"


def test_drained_means_asked_and_no_trainer_left(desk: Desk) -> None:
    desk.say(node_id="n1")
    desk.say(node_id="n2", state=NodeActivity.STOPPED)
    assert desk.runtime.is_drained(JOB) == frozenset()
    desk.runtime.drain(JOB, ["n1", "n2"])
    desk.runtime.drain(JOB, ["n1"])
    assert desk.runtime.is_drained(JOB) == {"n2"}
    desk.say(node_id="n1", state=NodeActivity.STOPPED)
    assert desk.runtime.is_drained(JOB) == {"n1", "n2"}
    desk.runtime.form_gang(JOB, 2, (node("n1"),), 600.0)
    assert desk.runtime.is_drained(JOB) == {"n2"}


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b'{"schema": 9}', b'{"schema": 1}'])
def test_a_torn_message_reads_as_none(desk: Desk, text: bytes) -> None:
    desk.mailbox.store.put("jobs/j/gang.json", text)
    desk.mailbox.store.put("jobs/j/nodes/n1/heartbeat.json", text)
    desk.mailbox.store.put("jobs/j/failures/000000001.json", text)
    assert desk.mailbox.gang() is None
    assert desk.mailbox.heartbeat("n1") is None
    assert desk.mailbox.failures() == ()


WRONG = [
    ("generation", "1"), ("generation", True), ("state", []), ("at", "now"), ("done_units", None),
    ("done_units", math.inf), ("saved_units", math.nan), ("units_per_s", "fast"), ("message", 3),
    ("meters", {"since": "then", "at": 0.0}), ("interrupts_at", [1.0]), ("at", 1e300),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_node_that_writes_nonsense_is_silent_at_the_worst(
    desk: Desk, name: str, value: object
) -> None:
    desk.say(node_id="n1")
    desk.say(node_id="n2")
    key = "jobs/j/nodes/n1/heartbeat.json"
    message = json.loads(desk.mailbox.store.get(key) or b"") | {name: value}
    desk.mailbox.store.put(key, json.dumps(message).encode())
    reports = [report.node_id for report in desk.runtime.node_reports(JOB)]
    meters_only = name == "meters"
    assert desk.state() is (GangState.TRAINING if meters_only else GangState.STARTING)
    assert reports == (["n1", "n2"] if meters_only else ["n2"])


def test_a_gang_awaits_those_before_it_that_may_still_be_saving(desk: Desk) -> None:
    desk.say(node_id="n1")
    desk.say(node_id="n2", state=NodeActivity.STOPPED)
    desk.runtime.form_gang(JOB, 2, (node("n3"),), 600.0)
    desk.say(node_id="n3", generation=2)
    desk.runtime.form_gang(JOB, 3, (node("n4"),), 600.0)
    assert (standing := desk.mailbox.gang())
    assert tuple(standing.former) == ("n3", "n1"), "also who was awaited by those"
    desk.runtime.form_gang(JOB, 4, (node("n4"), node("n5")), 600.0)
    assert (standing := desk.mailbox.gang())
    assert tuple(standing.former) == (), "who stays hands over"


def test_a_gang_waits_for_no_unreachable_node(desk: Desk) -> None:
    desk.say(node_id="n1")
    assert desk.state() is GangState.STARTING
    desk.clock.now_s += 100
    desk.runtime.form_gang(JOB, 2, (node("n3"),), 600.0)
    assert (standing := desk.mailbox.gang())
    assert tuple(standing.former) == ()


@pytest.mark.parametrize("at", [-1e17, 1e17])
def test_any_instant_that_a_node_says_is_one_of_the_job(desk: Desk, at: float) -> None:
    desk.mailbox.post_checkpoint(SavedCheckpoint("a", 1.0, "/c", at=at))
    desk.say(node_id="n1", interrupts_at=at, meters=NodeMeasurement(since=at, at=at))
    assert [saved.units for saved in desk.runtime.checkpoints(JOB, 0.0)] == [1.0]
    assert [report.node_id for report in desk.runtime.node_reports(JOB)] == ["n1"]


def test_what_a_node_does_not_know_may_be_written_as_no_number(desk: Desk) -> None:
    desk.say(node_id="n1", goodput=math.nan, data_wait_share=-math.inf)
    desk.say(node_id="n2")
    assert [r.goodput for r in desk.runtime.node_reports(JOB)] == [None, None]


def test_a_power_cap_goes_to_the_gang_and_changes_within_its_generation(desk: Desk) -> None:
    desk.runtime.form_gang(JOB, 2, (node("n1"),), 600.0, PowerCap(300.0, 0.9, 900.0, "test"))
    capped = desk.mailbox.gang()
    assert capped is not None
    assert capped.power_cap_w == 300.0
    desk.runtime.cap_power(JOB, None)
    assert desk.mailbox.gang() == replace(capped, power_cap_w=None)


def test_what_nodes_say_of_their_power_limits_is_reported(desk: Desk) -> None:
    desk.say(node_id="n1", power_asked_w=300.0, power_cap_w=300.0, power_message="limited")
    desk.say(node_id="n2")
    desk.say(node_id="n3", power_message="no member")
    assert desk.runtime.power_limits(JOB) == (PowerLimitRecord("n1", 300.0, 300.0, "limited"),)


def test_signs_of_life_are_remembered_of_so_many_nodes(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_module, "MAX_NODES", 2)
    for generation in range(2, 6):
        members = tuple(node(f"n{generation}-{number}") for number in range(2))
        desk.runtime.form_gang(JOB, generation, members, 600.0)
        for member in members:
            desk.say(node_id=member.node_id, generation=generation)
        assert desk.state() is GangState.TRAINING
    assert {node_id for _, node_id in desk.runtime._last_change} == {"n5-0", "n5-1"}


def test_a_cap_for_a_job_without_a_gang_is_nothing(tmp_path: Path) -> None:
    runtime = MailboxRuntime(FileStore(tmp_path), Still())
    runtime.cap_power(JOB, None)
    assert runtime.power_limits(JOB) == ()


def test_what_nodes_measured_is_reported_in_the_jobs_time(desk: Desk) -> None:
    now = desk.clock.now_s
    meters = NodeMeasurement(
        since=now - 100, at=now - 10, energy_wh=2.0, parts=("gpu",), gpus=8, training_s=5.0
    )
    desk.say(
        node_id="n1",
        meters=meters,
        step_s=0.5,
        interval_s=600.0,
        interval_reason="hazard",
        guarantee="exact",
        warning="rebalance",
    )
    (report,) = desk.runtime.node_reports(JOB)
    assert (NOW - report.until_at).total_seconds() == pytest.approx(10 * SPEED)
    assert (report.until_at - report.from_at).total_seconds() == pytest.approx(90 * SPEED)
    assert report.metered_wh == pytest.approx(2.0 * SPEED)
    assert (report.parts, report.gpus, report.training_s) == (("gpu",), 8, 5.0 * SPEED)
    assert (report.step_s, report.interval_s) == (0.5 * SPEED, 600.0)
    assert (report.interval_reason, report.warning) == ("hazard", "rebalance")
    assert report.guarantee == "exact"
    assert not report.final
    desk.say(node_id="n1", state=NodeActivity.STOPPED)
    (report,) = desk.runtime.node_reports(JOB)
    assert report.final
    assert report.metered_wh is None


def test_an_elastic_gang_trains_on_without_who_is_gone(desk: Desk) -> None:
    desk.runtime.form_gang(replace(JOB, elastic=True), 2, (node("n1"), node("n2")), 600.0)
    desk.say(node_id="n1", generation=2, done_units=300.0, saved_units=200.0)
    progress = desk.runtime.progress(JOB, NOW)
    assert progress.state is GangState.TRAINING, "the other one is still to come"
    assert progress.message == "without n2"
    for state in (NodeActivity.STOPPED, NodeActivity.BROKEN, NodeActivity.GONE):
        desk.say(node_id="n2", generation=2, state=state)
        progress = desk.runtime.progress(JOB, NOW)
        assert (progress.state, progress.done_units) == (GangState.TRAINING, 300.0)
    desk.clock.now_s += 61
    assert desk.runtime.progress(JOB, NOW).state is not GangState.TRAINING, "nobody is heard"


@pytest.mark.parametrize(
    ("gpus_per_group", "elastic", "is_sharded"),
    [(None, True, False), (4, True, True), (8, True, True), (16, False, True)],
)
def test_a_gang_is_elastic_unless_its_shard_groups_span_nodes(
    tmp_path: Path, gpus_per_group: int | None, elastic: bool, is_sharded: bool
) -> None:
    members = node("n1"), node("n2")
    runtime = MailboxRuntime(FileStore(tmp_path), Still(), machines=Machines())
    resources = Resources(max_nodes=4, gpus_per_group=gpus_per_group)
    runtime.form_gang(replace(JOB, elastic=True, resources=resources), 1, members, 600.0)
    gang = Mailbox(FileStore(tmp_path), "j").gang()
    assert gang is not None
    assert (gang.elastic, gang.is_sharded) == (elastic, is_sharded)


@pytest.mark.parametrize("message", ["gang.json", "nodes/n1/heartbeat.json", "checkpoints/x.json"])
def test_what_no_agent_writes_is_not_read(desk: Desk, tmp_path: Path, message: str) -> None:
    path = tmp_path / "jobs" / "j" / message
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(10 << 30)
    with pytest.raises(StoreError, check=has_code("too_large")):
        desk.runtime.progress(JOB, NOW)


def test_of_very_many_messages_the_newest_are_read(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in range(1, 6):
        saved = SavedCheckpoint(f"step-{step:09d}.1.0", float(step), "/c", desk.clock.now_s)
        desk.mailbox.post_checkpoint(saved)
    monkeypatch.setattr(mailbox_module, "MAX_MESSAGES", 2)
    assert [c.units for c in desk.runtime.checkpoints(JOB, 0.0)] == [4.0, 5.0]
    monkeypatch.setattr(mailbox_module, "MAX_KEYS", 4)
    with pytest.raises(StoreError, check=has_code("too_many_letters")):
        desk.runtime.checkpoints(JOB, 0.0)


def test_thousands_of_messages_are_read_little_by_little_and_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for step in range(1, 8):
        saved = SavedCheckpoint(f"step-{step:09d}.1.0", float(step), "/c", desk.clock.now_s)
        desk.mailbox.post_checkpoint(saved)
    read = list[str]()
    get = FileStore.get

    def noted(store: FileStore, key: str, max_bytes: int | None = None) -> bytes | None:
        read.append(key)
        return get(store, key, max_bytes)

    monkeypatch.setattr(mailbox_module, "MAX_BATCH", 3)
    monkeypatch.setattr(FileStore, "get", noted)
    units = [[c.units for c in desk.runtime.checkpoints(JOB, 0.0)] for _ in range(4)]
    assert units == [[5.0, 6.0, 7.0], [2.0, 3.0, 4.0, 5.0, 6.0, 7.0], *[list(range(1, 8))] * 2]
    assert len(read) == 7, "each once"
    assert [r.message for r in caplog.records] == [
        "job j has 4 unread messages in checkpoints; the next ticks read them, 3 at a time"
    ]
