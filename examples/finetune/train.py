"""Train a character GPT. All that costopt needs are the lines that name ``job``."""

from __future__ import annotations

import argparse
import hashlib
import time
from pathlib import Path

import torch
from corpus import corpus
from model import CharacterGpt
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

import costopt.train

SEED = 20


class Windows(Dataset[tuple[Tensor, Tensor]]):
    """Every stretch of ``context`` characters, and the character that follows each of them."""

    def __init__(self, text: Tensor, context: int) -> None:
        self._text, self._context = text, context

    def __len__(self) -> int:
        return len(self._text) - self._context

    def __getitem__(self, start: int) -> tuple[Tensor, Tensor]:
        window = self._text[start : start + self._context + 1]
        return window[:-1], window[1:]


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
    parser.add_argument("--steps", type=int, default=450)
    parser.add_argument("--batch", type=int, default=24, help="windows per step")
    parser.add_argument(
        "--step-seconds", type=float, default=0.0, help="a step lasts this long at least"
    )
    parser.add_argument("--output", type=Path, default=Path("output/weights.sha256"))
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    text = corpus(200_000)
    alphabet = {character: number for number, character in enumerate(sorted(set(text)))}
    model = CharacterGpt(len(alphabet))
    windows = Windows(torch.tensor([alphabet[character] for character in text]), model.context)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)

    job = costopt.train.attach(
        model,
        optimizer,
        scheduler,
        windows,
        global_batch=options.batch,
        virtual_shards=2,
        clip_norm=1.0,
        seed=SEED,
    )
    for step in job.steps(options.steps):
        ends_at = time.monotonic() + options.step_seconds
        for batch in job.microbatches():
            with job.microbatch(batch):
                inputs, targets = batch
                loss = functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
                job.observe(loss)
                loss.backward()  # type: ignore[no-untyped-call]
        time.sleep(max(0.0, ends_at - time.monotonic()))
        job.apply()
        if job.rank == 0 and (step % 25 == 0 or job.step == options.steps):
            print(f"step {step:5d}  loss {job.loss:.4f}", flush=True)

    if job.rank == 0:
        print(f"the result is {job.guarantee}")
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(weights_hash(model) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
