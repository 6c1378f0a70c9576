"""The section of a job file that describes a language model instead of FLOPs and sizes."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from costopt.domain.model_card import (
    ModelCard,
    Optimizer,
    Precision,
    TrainingMethod,
)
from costopt.spec.fields import Amount, Count, FileModel, parse_amount

Parameters = Annotated[
    float,
    Field(ge=1e6, le=1e16),
    BeforeValidator(parse_amount),
    WithJsonSchema(
        {
            "type": ["number", "string"],
            "examples": ["70B", 70e9],
            "minimum": 1e6,
            "maximum": 1e16,
        }
    ),
]
SequenceLength = Annotated[int, Field(ge=1, le=100_000_000)]


class ModelSection(FileModel):
    """A language model: gives work, FLOPs, memory and checkpoint size where the file does not."""

    params: Parameters = Field(description="its parameters, such as 70B or 70e9")
    method: Annotated[TrainingMethod, Field(strict=False)] = Field(
        description="lora: adapters alone are trained; full: all weights; pretrain: from scratch"
    )
    sequence: SequenceLength = Field(description="tokens of a sequence")
    tokens: Amount | None = Field(
        default=None, description="tokens to train on; default: those of work"
    )
    precision: Annotated[Precision, Field(strict=False)] = Field(
        default=Precision.BF16, description="the number format of matrix products"
    )
    optimizer: Annotated[Optimizer, Field(strict=False)] = Field(
        default=Optimizer.ADAMW, description="the optimizer, by the state that it holds"
    )
    active_params: Parameters | None = Field(
        default=None, description="parameters that a token passes; default: all"
    )
    layers: Count | None = Field(default=None, description="default: by the usual shape")
    hidden: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, description="the hidden size; default: by the usual shape"
    )
    rank: Count = Field(default=16, description="the rank of LoRA adapters on all linear layers")

    def card(self) -> ModelCard:
        """Return the section as the domain's model card."""
        return ModelCard(
            params=self.params,
            method=self.method,
            sequence=self.sequence,
            precision=self.precision,
            optimizer=self.optimizer,
            tokens=self.tokens,
            active_params=self.active_params,
            layers=self.layers,
            hidden=self.hidden,
            rank=self.rank,
        )
