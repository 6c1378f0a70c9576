"""What a language model's size says of its training: FLOPs, memory, checkpoints.

N are the parameters, L the layers, h the hidden size, s the tokens of a sequence. Where the shape
is not given it is that of a dense transformer with h = ``HIDDEN_PER_LAYER`` · L: N = 12 · L · h²
(Kaplan et al., arXiv 2001.08361; Llama 3 8B, GPT-3 and Llama 2 13B have a ratio of 128, Llama 3 70B
of 102). Memory is that of parameters, gradients and optimizer state sharded over the whole gang
(ZeRO-3, arXiv 1910.02054; FSDP), with one sequence per GPU at a time and activations recomputed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from costopt.domain.estimate import Basis, Estimate

GIB = 2.0**30
HIDDEN_PER_LAYER = 128
USABLE_SHARE = 0.9
"""Of a GPU's memory; the rest is for the driver, communication buffers and fragmentation."""
LOGIT_BYTES = 6 * 128_256
"""Of a token: logits in 2 and 4 bytes over the vocabulary of Llama 3, if loss is not in chunks."""


class TrainingMethod(StrEnum):
    """What is trained."""

    LORA = "lora"
    FULL = "full"
    PRETRAIN = "pretrain"


class Precision(StrEnum):
    """The number format of matrix products."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"
    FP8 = "fp8"


class Optimizer(StrEnum):
    """The optimizer, by the state that it holds for each trained parameter."""

    ADAMW = "adamw"
    ADAMW_8BIT = "adamw8bit"
    SGD = "sgd"


OPTIMIZER_BYTES = {Optimizer.ADAMW: 8, Optimizer.ADAMW_8BIT: 2, Optimizer.SGD: 4}
"""Per trained parameter: two moments in 4 or 1 bytes, one momentum in 4."""
MASTER_BYTES = 4


@dataclass(frozen=True, slots=True)
class DerivedFigure:
    """A figure that a job file does not state and that follows from its model."""

    field: str
    unit: str
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """The memory that training takes: ``gang_gib`` over all GPUs, and ``gpu_gib`` on each."""

    gang_gib: Estimate
    gpu_gib: Estimate

    def min_gpus(self, memory_gib: float) -> int | None:
        """Return the fewest GPUs with ``memory_gib`` each that hold it; None where none do."""
        room_gib = USABLE_SHARE * memory_gib - self.gpu_gib.value
        return math.ceil(self.gang_gib.value / room_gib) if room_gib > 0 else None


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A language model and how it is trained.

    ``active_params`` are those that a token passes, fewer than ``params`` in a mixture of experts.
    ``rank`` is that of LoRA adapters on all linear layers.
    """

    params: float
    method: TrainingMethod
    sequence: int
    precision: Precision = Precision.BF16
    optimizer: Optimizer = Optimizer.ADAMW
    tokens: float | None = None
    active_params: float | None = None
    layers: int | None = None
    hidden: int | None = None
    rank: int = 16

    @property
    def width(self) -> float:
        """Return h, as given or by the usual shape."""
        active = self.active_params or self.params
        if self.hidden is None and self.layers is not None:
            return math.sqrt(active / (12 * self.layers))
        return self.hidden or (active * HIDDEN_PER_LAYER / 12) ** (1 / 3)

    @property
    def depth(self) -> float:
        """Return L, as given or by the usual shape."""
        return self.layers or self.width / HIDDEN_PER_LAYER

    @property
    def trained_params(self) -> float:
        """Return the parameters with gradients: all, or those of the adapters, N · 2 · rank / h."""
        if self.method is TrainingMethod.LORA:
            return min(self.params, self.params * 2 * self.rank / self.width)
        return self.params

    def flops_per_token(self) -> Estimate:
        """Return the floating-point operations of one token, without recomputation.

        6 · N (Kaplan et al.), for LoRA 4 · N and 6 of each adapter parameter, as frozen weights
        have no gradient ("LoRA Without Regret", Schulman et al. 2025: two thirds of full training);
        and 12 · L · h · s of attention (PaLM, arXiv 2204.02311, appendix B). The interval is
        without attention and with twice as much.
        """
        active = self.active_params or self.params
        if self.method is TrainingMethod.LORA:
            products = 4 * active + 6 * self.trained_params
            source = "4·N without weight gradients (Schulman et al. 2025)"
        else:
            products = 6 * active
            source = "6·N (Kaplan et al. 2020)"
        attention = 12 * self.depth * self.width * self.sequence
        return Estimate(
            products + attention,
            products,
            products + 2 * attention,
            Basis.MODELLED,
            f"{source} + 12·L·h·s of attention (PaLM 2022)",
        )

    @property
    def _weight_bytes(self) -> int:
        return 4 if self.precision is Precision.FP32 else 2

    def memory(self) -> GpuMemory:
        """Return the memory that the gang and each GPU need.

        The gang: weights and, of what is trained, gradients, a master copy in fp32 and optimizer
        state; 16 bytes per parameter for AdamW in mixed precision (ZeRO). Each GPU: 2 · s · h per
        layer and 34 · s · h of the layer that is recomputed (Korthikanti et al., arXiv 2205.05198),
        and the weights of two gathered layers. The interval leaves out one of these layers, or
        adds logits of a large vocabulary.
        """
        weight = self._weight_bytes
        master = 0 if weight == MASTER_BYTES else MASTER_BYTES
        each = weight + master + OPTIMIZER_BYTES[self.optimizer]
        state = (self.params * weight + self.trained_params * each) / GIB
        activations = self.sequence * self.width * (2 * self.depth + 34) / GIB
        layer = weight * self.params / self.depth / GIB
        logits = self.sequence * LOGIT_BYTES / GIB
        value = activations + 2 * layer
        lora = self.method is TrainingMethod.LORA
        trained = f"{weight} B of each weight, {each} B of each adapter parameter"
        return GpuMemory(
            Estimate.exact(
                state,
                Basis.MODELLED,
                f"{trained if lora else f'{weight + each} B per parameter'} (ZeRO)",
            ),
            Estimate(
                value,
                value - layer,
                value + logits,
                Basis.MODELLED,
                "recomputed activations (Korthikanti et al. 2022), two gathered layers",
            ),
        )

    def checkpoint_gib(self) -> Estimate:
        """Return the size of what is trained, in fp32, with its optimizer state.

        The interval is with weights in two bytes.
        """
        state = OPTIMIZER_BYTES[self.optimizer]
        value = self.trained_params * (MASTER_BYTES + state) / GIB
        low = self.trained_params * (2 + state) / GIB
        what = "adapter" if self.method is TrainingMethod.LORA else "parameter"
        source = f"{MASTER_BYTES + state} B per {what}: fp32 weights and {self.optimizer} state"
        return Estimate(value, low, value, Basis.MODELLED, source)


TYPICAL_MFU = 0.4
TYPICAL_MFU_SOURCE = "LLM Foundry @061f2c7: 0.30 to 0.46 on H100, BF16, up to 8,192 tokens"
TF32_SHARE = 0.5
"""The peak in TF32, which fp32 training uses, over that in BF16 (A100 and H100 data sheets)."""


def typical_mfu(precision: Precision) -> tuple[float, str]:
    """Return the MFU of a node of H100s to assume where none is known, with its source.

    For FP8 it is that of BF16, as its gain depends on the model.
    """
    if precision is Precision.FP32:
        return TYPICAL_MFU * TF32_SHARE, f"{TYPICAL_MFU_SOURCE}; half in TF32"
    return TYPICAL_MFU, TYPICAL_MFU_SOURCE
