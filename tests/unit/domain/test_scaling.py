"""What a gang keeps at each doubling, against the recorded runs."""

from __future__ import annotations

import math
import statistics

import pytest

from costopt.catalog import load_catalog
from costopt.domain.scaling import FAST_LINKS, SLOW_LINKS, kept_speed_up

# MFU by GPUs of LLM Foundry (scripts/train/benchmarking @8c8dd48, BF16): runs that differ in
# nothing else. The tables "H100 80GB BF16", then "A100 40GB".
LLM_FOUNDRY = (
    {128: 42.18, 256: 41.42, 512: 41.12}, {8: 39.79, 16: 39.58, 32: 39.95, 64: 39.86},
    {128: 40.6, 256: 39.15, 512: 36.65}, {16: 42.36, 32: 41.52, 64: 40.85},
    {128: 41.85, 256: 40.89, 512: 40.27}, {32: 41.7, 64: 40.8},
    {128: 42.43, 256: 41.25, 512: 39.24}, {64: 42.57, 128: 43.36, 256: 42.42, 512: 41.25},
    {8: 34.9, 16: 37.89, 32: 37.57}, {8: 46.44, 128: 45.71, 256: 44.15, 512: 42.2},
    {8: 42.75, 16: 40.93, 32: 39.86, 64: 39.27, 128: 38.86}, {64: 52.04, 128: 51.93},
    {32: 45.39, 64: 55.44, 128: 54.41}, {8: 56.23, 16: 55.69},
    {16: 48.66, 32: 47.26, 64: 46.27, 128: 45.61}, {8: 57.82, 16: 56.02},
    {32: 56.96, 64: 55.94, 128: 54.8}, {8: 52.89, 16: 51.9, 32: 51.97, 64: 51.44, 128: 50.73},
    {32: 51.55, 64: 50.73, 128: 50.14},
)  # fmt: skip
MACHINES = load_catalog()
P5, G4DN = (MACHINES.get_instance_type("aws", name) for name in ("p5.48xlarge", "g4dn.12xlarge"))
A2 = MACHINES.get_instance_type("gcp", "a2-highgpu-8g")


def test_fast_links_keep_what_the_recorded_runs_kept() -> None:
    doublings = [
        (mfu[end] / mfu[begin]) ** (1 / math.log2(end / begin))
        for mfu in LLM_FOUNDRY
        for begin, end in zip(mfu, list(mfu)[1:], strict=False)
    ]
    percentiles = statistics.quantiles(doublings, n=20, method="inclusive")
    assert len(doublings) == 42
    assert statistics.median(doublings) == pytest.approx(FAST_LINKS.value, abs=0.005)
    assert percentiles[0] == pytest.approx(FAST_LINKS.low, abs=0.01)
    assert percentiles[-1] > FAST_LINKS.high == 1


def test_each_doubling_takes_the_links_that_it_adds() -> None:
    # 4 → 8 → 16 → 32 GPUs: one doubling within a node of A100s, two over 100 Gbit/s between them.
    kept = kept_speed_up(A2, 4, 32)
    assert kept.value == pytest.approx(FAST_LINKS.value * SLOW_LINKS.value**2)
    assert kept.low == pytest.approx(FAST_LINKS.low * SLOW_LINKS.low**2)
    assert (FAST_LINKS.source in kept.source, SLOW_LINKS.source in kept.source) == (True, True)
    assert kept_speed_up(P5, 8, 64).value == pytest.approx(FAST_LINKS.value**3)
    assert kept_speed_up(G4DN, 1, 16).value == pytest.approx(SLOW_LINKS.value**4)


def test_fewer_gpus_gain_what_more_lose() -> None:
    down, up = kept_speed_up(P5, 64, 8), kept_speed_up(P5, 8, 64)
    assert down.value == pytest.approx(1 / up.value)
    assert (down.low, down.high) == pytest.approx((1 / up.high, 1 / up.low))


def test_a_stated_efficiency_has_the_narrower_relative_interval_on_any_links() -> None:
    kept = kept_speed_up(A2, 8, 32, stated=0.9)
    assert kept.value == pytest.approx(0.9**2)
    assert kept.low / kept.value == pytest.approx((FAST_LINKS.low / FAST_LINKS.value) ** 2)
    assert kept_speed_up(P5, 8, 8).value == 1
