"""Train a character GPT. All that costopt needs are the lines that name ``job``."""

from __future__ import annotations

import argparse
import hashlib
import os
from pathlib import Path

import torch
from corpus import corpus
from model import CharacterGpt
from torch import Tensor, nn
from torch.nn import functional

import costopt.train

RANK, WORLD_SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
SEED = 20


def batch(text: Tensor, step: int, size: int, context: int) -> tuple[Tensor, Tensor]:
    """This rank's part of the step's batch: a pure function of (seed, step, rank)."""
    draw = torch.Generator().manual_seed((SEED * 1_000_003 + step) * 1009 + RANK)
    starts = torch.randint(len(text) - context - 1, (size,), generator=draw).tolist()
    windows = torch.stack([text[start : start + context + 1] for start in starts])
    return windows[:, :-1], windows[:, 1:]


def weights_hash(model: nn.Module) -> str:
    """SHA-256 of every weight, bit by bit."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


def main() -> None:
    """Train for ``--steps`` and leave the hash of the weights in ``--output``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=12, help="windows per rank and step")
    parser.add_argument("--output", type=Path, default=Path("output/weights.sha256"))
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    text = corpus(200_000)
    alphabet = {character: number for number, character in enumerate(sorted(set(text)))}
    numbers = torch.tensor([alphabet[character] for character in text])
    model = CharacterGpt(len(alphabet))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)

    job = costopt.train.attach(model, optimizer, scheduler, clip_norm=1.0)
    for step in job.steps(options.steps):
        inputs, targets = batch(numbers, step, options.batch, model.context)
        loss = functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        job.apply()
        if RANK == 0 and (step % 25 == 0 or step == options.steps - 1):
            print(f"step {step:5d}  loss {loss.item():.4f}", flush=True)

    if RANK == 0:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(weights_hash(model) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
