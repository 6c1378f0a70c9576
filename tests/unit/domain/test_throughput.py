"""Speeds from FLOPs: whose MFU is stated at which scale, and what it is elsewhere."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from costopt.catalog import load_catalog
from costopt.domain.estimate import Basis
from costopt.domain.market import Gpu, InstanceType
from costopt.domain.throughput import Mfu, Throughput, ThroughputSample

FLOPS = 4.2e11


def machine(name: str, provider: str = "aws") -> InstanceType:
    return load_catalog().get_instance_type(provider, name)


H100, A100, T4 = machine("p5.48xlarge"), machine("p4de.24xlarge"), machine("g4dn.12xlarge")
ONE_H100 = machine("a3-highgpu-1g", "gcp")


def throughput(value: float = 0.42, gpu: str = "H100", gpus: int | None = 64) -> Throughput:
    relative = {"H100": H100, "A100": A100, "T4": T4}[gpu].gpu.relative_mfu
    return Throughput((), FLOPS, Mfu(value, gpu, gpus, relative), 0.9)


def mfu_reached(speed: Throughput, machine: InstanceType, gpus: int) -> float:
    found = speed.units_per_s(machine, gpus)
    assert found is not None
    return found.value * FLOPS / (gpus * machine.gpu.peak_tflops * 1e12)


def test_an_mfu_counts_in_full_at_its_own_scale() -> None:
    assert mfu_reached(throughput(), H100, 64) == pytest.approx(0.42)


def test_efficiency_scales_an_mfu_up_and_down() -> None:
    assert mfu_reached(throughput(), H100, 128) == pytest.approx(0.42 * 0.9)
    assert mfu_reached(throughput(), H100, 8) == pytest.approx(0.42 / 0.9**3)


def test_a_plain_mfu_is_that_of_one_node_whatever_its_size() -> None:
    plain = throughput(gpus=None)
    assert mfu_reached(plain, H100, 8) == pytest.approx(0.42)
    assert mfu_reached(plain, H100, 16) == pytest.approx(0.42 * 0.9)
    assert mfu_reached(plain, ONE_H100, 1) == pytest.approx(0.42)
    assert mfu_reached(plain, ONE_H100, 8) == pytest.approx(0.42 * 0.9**3)


def test_no_scale_makes_a_gang_faster_than_its_peak() -> None:
    assert mfu_reached(throughput(0.7, gpus=1024), H100, 8) == pytest.approx(1.0)


def test_another_model_takes_the_recorded_factor_and_its_interval() -> None:
    own = throughput().units_per_s(H100, 64)
    other = throughput().units_per_s(A100, 64)
    assert own is not None
    assert other is not None
    assert A100.gpu.relative_mfu is not None
    factor = A100.gpu.relative_mfu
    assert mfu_reached(throughput(), A100, 64) == pytest.approx(0.42 * factor.value)
    assert other.high / other.value > own.high / own.value
    assert other.basis is Basis.MODELLED
    assert factor.source in other.source
    assert factor.source not in own.source
    back = throughput(gpu="A100")
    assert mfu_reached(back, A100, 64) == pytest.approx(0.42)
    assert mfu_reached(back, H100, 64) == pytest.approx(0.42 / factor.value)


def test_an_unrecorded_model_keeps_the_mfu_within_a_factor_of_two() -> None:
    speed = throughput().units_per_s(T4, 64)
    assert speed is not None
    assert mfu_reached(throughput(), T4, 64) == pytest.approx(0.42)
    assert speed.high / speed.value >= 2
    assert speed.low / speed.value <= 0.5
    assert mfu_reached(throughput(gpu="T4"), T4, 64) == pytest.approx(0.42)


def test_a_measured_speed_goes_before_flops() -> None:
    measured = replace(throughput(), points=(ThroughputSample("A100", 8, 7.0),))
    speed, modelled = measured.units_per_s(A100, 8), measured.units_per_s(H100, 8)
    assert speed is not None
    assert modelled is not None
    assert (speed.value, speed.basis) == (7.0, Basis.MEASURED)
    assert modelled.basis is Basis.MODELLED


def test_a_model_that_no_catalogue_holds_has_no_record() -> None:
    strange = replace(H100, gpu=Gpu("X9", 80, None, None, 500, "bf16"))
    speed = throughput().units_per_s(strange, 64)
    assert speed is not None
    assert math.isclose(speed.value, 64 * 500e12 * 0.42 / FLOPS)
