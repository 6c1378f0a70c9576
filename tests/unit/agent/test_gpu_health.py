"""What an agent reads of its GPUs' health, from a stand-in for nvidia-smi and a kernel's log."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from costopt.agent.gpu_health import GpuHealthMonitor, KernelLogXids
from costopt.controller.gang_status import TimeScale, build_node_report
from costopt.domain.gpu_health import XIDS, GpuHealth, XidResponse
from costopt.protocol.mailbox import Mailbox
from costopt.protocol.messages import Heartbeat, NodeActivity
from costopt.store.folder import FileStore
from tests.support.fake_nvidia_smi import FakeNvidiaSmi
from tests.support.market_fixtures import T0

pytestmark = pytest.mark.process


@pytest.fixture
def tool(tmp_path: Path) -> FakeNvidiaSmi:
    return FakeNvidiaSmi(tmp_path / "bin")


def monitor(tool: FakeNvidiaSmi, xids: Iterable[int] = ()) -> GpuHealthMonitor:
    return GpuHealthMonitor(str(tool.folder / "nvidia-smi"), 1.0, lambda: xids)


def sampled(watch: GpuHealthMonitor) -> GpuHealth:
    watch.sample()
    health = watch.reading()
    assert health is not None
    return health


def test_utilization_adds_up_and_errors_count_from_the_agents_start(tool: FakeNvidiaSmi) -> None:
    tool.read_health("50", "7")
    watch = monitor(tool)
    assert watch.reading() is None
    first = sampled(watch)
    assert first.ecc_errors == 0
    assert first.remap_pending is first.remap_failed is False
    assert first.busy_s == pytest.approx(first.watched_s / 2)
    tool.read_health("100", "9", "Yes", "Yes")
    then = sampled(watch)
    assert then.ecc_errors == 4, "two of each GPU"
    assert then.busy_s - first.busy_s == pytest.approx(then.watched_s - first.watched_s)
    assert then.remap_pending
    assert then.remap_failed
    assert len(then.faults) == 2


def test_what_the_tool_does_not_report_is_unknown(tool: FakeNvidiaSmi, tmp_path: Path) -> None:
    tool.read_health("[N/A]", "[N/A]", "[N/A]", "[N/A]")
    assert sampled(monitor(tool)) == GpuHealth()
    absent = GpuHealthMonitor(str(tmp_path / "absent"), 1.0)
    absent.sample()
    assert absent.reading() is None


def test_a_gpu_that_the_driver_has_lost_is_a_fault(tool: FakeNvidiaSmi) -> None:
    watch = monitor(tool)
    assert not sampled(watch).lost
    tool.read_health(lost=True)
    assert sampled(watch).faults == ("the driver has lost a GPU",)
    tool.read_health()
    assert sampled(watch).lost, "it fell off once"


def test_each_error_code_is_reported_once(tool: FakeNvidiaSmi) -> None:
    watch = monitor(tool, (48, 63, 48, 13))
    sampled(watch)
    health = sampled(watch)
    assert health.xids == (48, 63, 13)
    assert [text.split()[1] for text in health.faults] == ["48"]
    assert [text.split()[1] for text in health.warnings] == ["63"]


def test_the_kernels_log_is_read_from_its_end_on(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text("6,1,1,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n")
    xids = KernelLogXids(log)
    assert list(xids.read()) == []
    with log.open("a") as more:
        more.write("6,2,2,-;usb 1-1: new device\n")
        more.write("3,3,3,-;NVRM: Xid (PCI:0000:3b:00): 48, pid=1, An uncorrectable double bit\n")
        more.write("3,4,4,-;NVRM: Xid (0000:03:00): 31, Ch 00000010\n")
    assert list(xids.read()) == [48, 31]
    assert list(xids.read()) == []


def test_every_code_of_the_issue_has_a_response() -> None:
    hardware = (48, 64, 74, 79, 94, 95, 119, 120)
    assert {XIDS[code][0] for code in hardware} == {XidResponse.REPLACE}
    assert {XIDS[code][0] for code in (13, 31, 43, 45)} == {XidResponse.APPLICATION}
    assert XIDS[63][0] is XidResponse.ALERT


def beat(health: GpuHealth | None) -> Heartbeat:
    return Heartbeat("n1", 1, NodeActivity.TRAINING, time.time(), 1, gpu_health=health)


def test_a_heartbeat_carries_it_and_an_older_agents_is_read_without(tmp_path: Path) -> None:
    mailbox = Mailbox(FileStore(tmp_path), "j")
    health = GpuHealth(60.0, 30.0, 2, True, False, False, (79, 13))
    mailbox.post_heartbeat(beat(health))
    assert mailbox.heartbeat("n1") == beat_of(mailbox, health)
    path = tmp_path / "jobs/j/nodes/n1/heartbeat.json"
    fields = json.loads(path.read_text())
    malformed: list[object] = [{"xids": "many"}, {"watched_s": None}, [], 7, {"unheard": 1}]
    for forged in malformed:
        path.write_text(json.dumps({**fields, "gpu_health": forged}))
        found = mailbox.heartbeat("n1")
        assert found is not None
        assert found.gpu_health is None
    for name in ("gpu_health", "microbatch_s"):
        del fields[name]
    path.write_text(json.dumps(fields))
    assert mailbox.heartbeat("n1") == beat_of(mailbox, None)


def beat_of(mailbox: Mailbox, health: GpuHealth | None) -> Heartbeat:
    found = mailbox.heartbeat("n1")
    assert found is not None
    return Heartbeat("n1", 1, NodeActivity.TRAINING, found.at, 1, gpu_health=health)


def test_the_controller_reads_it_in_the_jobs_time_and_believes_nothing_impossible() -> None:
    scale = TimeScale(T0, time.time(), 10.0)
    report = build_node_report(beat(GpuHealth(60.0, 30.0, 2)), scale)
    assert report.gpu_health == GpuHealth(600.0, 300.0, 2)
    for watched_s, busy_s in ((60.0, 61.0), (-1.0, -2.0), (1e18, 0.0)):
        forged = build_node_report(beat(GpuHealth(watched_s, busy_s, xids=(79,))), scale)
        assert forged.gpu_health is None
