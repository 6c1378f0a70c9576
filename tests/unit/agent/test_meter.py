# ruff: noqa: N802 - named as NVML names them
"""What the node's instruments say, from a stand-in for NVML and a powercap tree on disk."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml
import pytest

from costopt.agent import meters as node_module
from costopt.agent.meters import (
    GpuMeter,
    Meter,
    MeterSample,
    NodeMeter,
    RaplMeter,
    open_gpu_meter,
    open_rapl_meter,
)
from tests.support.manual_clock import ManualClock


@dataclass
class Board:
    mj: int | None = 0
    mw: int | None = 100_000
    busy: int | None = 50
    used: int = 20


class FakeNvml:
    """The functions of pynvml that the meter calls, with the real errors."""

    NVMLError = pynvml.NVMLError
    NVMLError_NotSupported = pynvml.NVMLError_NotSupported

    def __init__(self, *boards: Board) -> None:
        self.boards = boards
        self.lost = False

    def nvmlDeviceGetCount(self) -> int:
        return len(self.boards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Board:
        return self.boards[index]

    def nvmlDeviceGetTotalEnergyConsumption(self, board: Board) -> int:
        return self._reported(board.mj)

    def nvmlDeviceGetPowerUsage(self, board: Board) -> int:
        return self._reported(board.mw)

    def nvmlDeviceGetUtilizationRates(self, board: Board) -> Any:
        return type("Rates", (), {"gpu": self._reported(board.busy)})

    def nvmlDeviceGetMemoryInfo(self, board: Board) -> Any:
        return type("Memory", (), {"used": board.used, "total": 80})

    def nvmlShutdown(self) -> None:
        self.lost = True

    def _reported(self, value: int | None) -> int:
        if self.lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        if value is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return value


def zone(root: Path, name: str, label: str, uj: int, max_uj: int = 1_000_000_000) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{label}\n")
    (folder / "energy_uj").write_text(f"{uj}\n")
    (folder / "max_energy_range_uj").write_text(f"{max_uj}\n")
    return folder / "energy_uj"


def joules(meter: Meter, now_s: float) -> float:
    sample = meter.sample(now_s)
    assert sample is not None
    return sample.joules


def test_the_energy_counters_of_all_gpus_are_added() -> None:
    one, two = Board(mj=5_000), Board(mj=7_000, busy=100, used=40)
    meter = GpuMeter(FakeNvml(one, two))
    assert joules(meter, 0.0) == 0.0
    one.mj, two.mj = 6_000, 9_500
    sample = meter.sample(1.0)
    assert sample is not None
    assert sample.joules == 3.5
    assert (sample.utilization, sample.memory_share) == (0.75, 0.5)


def test_a_counter_that_was_reset_subtracts_nothing() -> None:
    board = Board(mj=5_000)
    meter = GpuMeter(FakeNvml(board))
    joules(meter, 0.0)
    board.mj = 100
    assert joules(meter, 1.0) == 0.0
    board.mj = 1_100
    assert joules(meter, 2.0) == 1.0


def test_power_is_integrated_where_there_is_no_counter() -> None:
    board = Board(mj=None, mw=100_000, busy=None)
    meter = GpuMeter(FakeNvml(board))
    assert joules(meter, 10.0) == 0.0
    board.mw = 300_000
    sample = meter.sample(12.0)
    assert sample is not None
    assert sample.joules == 400.0
    assert sample.utilization is None


def test_an_unreported_gpu_is_unknown_and_not_zero() -> None:
    assert GpuMeter(FakeNvml(Board(mj=None, mw=None))).sample(0.0) is None


def test_a_node_without_a_driver_says_why_its_gpus_are_not_measured() -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        meter, why = open_gpu_meter()
        assert meter is None
        assert why.startswith("GPUs are not measured: ")
    else:
        pytest.skip("this machine has NVML")


def test_packages_and_their_memory_count_once(tmp_path: Path) -> None:
    package = zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    dram = zone(tmp_path, "intel-rapl:0:1", "dram", 0)
    core = zone(tmp_path, "intel-rapl:0:0", "core", 0)
    platform = zone(tmp_path, "intel-rapl:1", "psys", 0)
    meter, why = open_rapl_meter(tmp_path)
    assert meter is not None
    assert why == ""
    for counter in (package, dram, core, platform):
        counter.write_text("3000000\n")
    assert joules(meter, 1.0) == pytest.approx(2.0 + 3.0)


def test_a_counter_that_wraps_around_goes_on(tmp_path: Path) -> None:
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 90, max_uj=100)
    meter = RaplMeter([counter.parent])
    counter.write_text("20\n")
    assert joules(meter, 1.0) == pytest.approx(30e-6)


def test_what_only_root_may_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 0)
    assert open_rapl_meter(tmp_path / "nothing")[1].endswith("contains no RAPL package")
    read = Path.read_text

    def forbidden(path: Path, *args: Any, **options: Any) -> str:
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied", str(path))
        return read(path, *args, **options)

    monkeypatch.setattr(Path, "read_text", forbidden)
    meter, why = open_rapl_meter(tmp_path)
    assert meter is None
    assert "only root may read" in why


def test_a_node_adds_its_meters_up_and_knows_what_training_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(monkeypatch, node_module)
    board, counter = Board(), zone(tmp_path, "intel-rapl:0", "package-0", 0)
    meter = NodeMeter(GpuMeter(FakeNvml(board)), RaplMeter([counter.parent]))
    clock.now_s += 2.0
    board.mj = 3_600_000
    meter.sample()
    meter.training = True
    counter.write_text("7200000000\n")
    (counter.parent / "max_energy_range_uj").write_text("1\n")
    clock.now_s += 3.0
    meter.sample()
    reading = meter.reading()
    assert reading.energy_wh == pytest.approx(1.0 + 2.0)
    assert reading.training_wh == pytest.approx(2.0)
    assert reading.training_s == pytest.approx(3.0)
    assert (reading.parts, reading.gpus) == (("gpu", "cpu"), 1)
    assert reading.at == pytest.approx(reading.since + 5.0)
    assert reading.gpu_utilization == 0.5


def test_a_meter_that_fails_ends_the_measured_time() -> None:
    board = Board()
    nvml = FakeNvml(board)
    meter = NodeMeter(GpuMeter(nvml), None)
    board.mj = 3_600_000
    time.sleep(0.01)
    meter.sample()
    until = meter.reading().at
    nvml.lost = True
    time.sleep(0.01)
    meter.sample()
    reading = meter.reading()
    assert reading.at == until
    assert reading.energy_wh == pytest.approx(1.0)
    assert reading.gpu_utilization is None


class Instrument:
    """A meter whose next samples a test sets; None: it does not answer."""

    gpus = 0
    interval_s = 1.0

    def __init__(self, *joules: float | None) -> None:
        self.error = ""
        self._joules = [0.0, *joules]

    def sample(self, now_s: float) -> MeterSample | None:
        joules = self._joules.pop(0)
        return None if joules is None else MeterSample(joules, 0.5)

    def close(self) -> None:
        pass


def test_a_meter_of_the_whole_node_replaces_the_others_and_answers_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock(monkeypatch, node_module)
    meter = NodeMeter(Instrument(3600.0, 3600.0), Instrument(0.0, 0.0), Instrument(None, 14_400.0))
    clock.now_s += 5.0
    meter.sample()
    assert (meter.reading().energy_wh, meter.reading().at) == (0.0, meter.reading().since)
    clock.now_s += 5.0
    meter.sample()
    reading = meter.reading()
    assert (reading.parts, reading.energy_wh) == (("node",), 4.0)
    assert reading.gpu_utilization == 0.5


@pytest.mark.parametrize("node_j", [14_400.0 / 1000, 14_400.0 * 1000, 3000.0])
def test_a_whole_node_meter_that_its_gpus_contradict_is_reported_not_booked(
    node_j: float, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    clock = ManualClock(monkeypatch, node_module)
    meter = NodeMeter(Instrument(3600.0), None, Instrument(node_j))
    clock.now_s += 60.0
    meter.sample()
    assert meter.reading().energy_wh is None
    assert "the node is not measured" in capfd.readouterr().err


def test_a_node_without_meters_measures_nothing() -> None:
    meter = NodeMeter(None, None)
    meter.start()
    meter.close()
    assert meter.reading().energy_wh is None
    assert meter.reading().parts == ()


def test_sampling_goes_on_beside_and_ends_with_a_last_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(GpuMeter, "interval_s", 0.01)
    board = Board()
    meter = NodeMeter(GpuMeter(FakeNvml(board)), None)
    meter.start()
    board.mj = 3_600_000
    deadline = time.monotonic() + 120
    while meter.reading().energy_wh != pytest.approx(1.0):
        assert time.monotonic() < deadline
    board.mj = 7_200_000
    meter.close()
    assert meter.reading().energy_wh == pytest.approx(2.0)
