"""A character GPT: pre-norm blocks, causal attention, tied embeddings, dropout."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """Attention, then a two-layer perceptron, each on a normalized residual stream."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.attention_in = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.perceptron = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
            nn.Dropout(dropout),
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, stream: Tensor) -> Tensor:
        """(batch, time, width) → the same."""
        batch, time, width = stream.shape
        mixed = self.attention_in(self.attention_norm(stream))
        query, key, value = (
            part.view(batch, time, self.heads, width // self.heads).transpose(1, 2)
            for part in mixed.split(width, dim=2)
        )
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        seen = seen.transpose(1, 2).reshape(batch, time, width)
        stream = stream + self.dropout(self.attention_out(seen))
        return cast("Tensor", stream + self.perceptron(stream))


class CharacterGpt(nn.Module):
    """Next-character logits for a window of characters."""

    def __init__(
        self,
        characters: int,
        *,
        context: int = 64,
        width: int = 96,
        layers: int = 3,
        heads: int = 4,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.context = context
        self.embedding = nn.Embedding(characters, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.embedding.weight, std=0.05)
        nn.init.normal_(self.position.weight, std=0.05)

    def forward(self, text: Tensor) -> Tensor:
        """(batch, time) of character numbers → (batch, time, characters) of logits."""
        places = torch.arange(text.shape[1], device=text.device)
        stream = self.embedding(text) + self.position(places)
        return functional.linear(self.norm(self.blocks(stream)), self.embedding.weight)
