"""FLOPs, memory and checkpoints of language models, against what was published."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costopt.domain.model_card import ModelCard, Optimizer, Precision, TrainingMethod, typical_mfu

LLAMA_70B = ModelCard(70e9, TrainingMethod.FULL, 4096)
LORA = replace(LLAMA_70B, method=TrainingMethod.LORA)
# Runs with full sharding of LLM Foundry (scripts/train/benchmarking @061f2c7): parameters, tokens
# of a sequence, GPUs, GiB of each.
LLM_FOUNDRY = (
    (64_862_437_376, 2048, 32, 80), (64_862_437_376, 2048, 64, 40), (30_019_254_272, 8192, 8, 80),
    (29_975_214_080, 2048, 32, 40), (13_011_240_960, 32_768, 8, 80),
    (12_885_411_840, 8192, 8, 40), (6_918_905_856, 65_536, 8, 80), (6_717_579_264, 16_384, 8, 40),
    (2_730_480_640, 32_768, 8, 40),
)  # fmt: skip


def test_flops_of_full_training_are_six_per_parameter_and_attention() -> None:
    exact = replace(LLAMA_70B, layers=80, hidden=8192).flops_per_token()
    attention = 12 * 80 * 8192 * 4096
    assert exact.value == pytest.approx(6 * 70e9 + attention)
    assert (exact.low, exact.high) == pytest.approx((6 * 70e9, 6 * 70e9 + 2 * attention))
    assert LLAMA_70B.flops_per_token().value == pytest.approx(exact.value, rel=0.01)
    pretraining = replace(LLAMA_70B, method=TrainingMethod.PRETRAIN)
    assert pretraining.flops_per_token() == LLAMA_70B.flops_per_token()


def test_lora_takes_two_thirds_of_the_products() -> None:
    full, lora = LLAMA_70B.flops_per_token(), LORA.flops_per_token()
    assert lora.low / full.low == pytest.approx(2 / 3, rel=0.01)
    assert lora.low > full.low * 2 / 3


def test_experts_count_where_a_token_passes_and_in_memory_all() -> None:
    mixture = replace(LLAMA_70B, active_params=7e9)
    assert mixture.flops_per_token().low == pytest.approx(6 * 7e9)
    assert mixture.memory().gang_gib == LLAMA_70B.memory().gang_gib


@pytest.mark.parametrize(("params", "sequence", "gpus", "gib"), LLM_FOUNDRY)
def test_what_was_trained_fits(params: float, sequence: int, gpus: int, gib: float) -> None:
    fewest = ModelCard(params, TrainingMethod.PRETRAIN, sequence).memory().min_gpus(gib)
    assert fewest is not None
    assert fewest <= gpus


def test_sixteen_bytes_per_parameter_bound_the_gang() -> None:
    memory = LLAMA_70B.memory()
    assert memory.gang_gib.value == pytest.approx(70e9 * 16 / 2**30)
    assert memory.gpu_gib.low < memory.gpu_gib.value < memory.gpu_gib.high
    fewest = memory.min_gpus(80)
    assert fewest is not None
    each = memory.gang_gib.value / fewest + memory.gpu_gib.value
    assert each <= 72
    assert memory.gang_gib.value / (fewest - 1) + memory.gpu_gib.value > 72
    assert memory.min_gpus(10) is None


@pytest.mark.parametrize(
    ("precision", "optimizer", "bytes_each"),
    [
        (Precision.FP16, Optimizer.ADAMW, 16),
        (Precision.FP32, Optimizer.ADAMW, 16),
        (Precision.BF16, Optimizer.ADAMW_8BIT, 10),
        (Precision.BF16, Optimizer.SGD, 12),
    ],
)
def test_state_follows_precision_and_optimizer(
    precision: Precision, optimizer: Optimizer, bytes_each: int
) -> None:
    card = replace(LLAMA_70B, precision=precision, optimizer=optimizer)
    assert card.memory().gang_gib.value == pytest.approx(70e9 * bytes_each / 2**30)


def test_adapters_alone_have_state_and_are_saved() -> None:
    assert LORA.trained_params < 0.01 * LORA.params
    assert LORA.memory().gang_gib.value < 0.15 * LLAMA_70B.memory().gang_gib.value
    assert LLAMA_70B.checkpoint_gib().value == pytest.approx(70e9 * 12 / 2**30)
    assert LORA.checkpoint_gib().value == pytest.approx(LORA.trained_params * 12 / 2**30)


def test_fp32_reaches_half_of_the_peak_of_bf16() -> None:
    assert typical_mfu(Precision.FP32)[0] == typical_mfu(Precision.BF16)[0] / 2
