"""A loop of one's own, on any number of processes: exact, elastic, a dozen lines of costopt.

torchrun --standalone --nproc-per-node=auto train.py trains on all GPUs of a node.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import costopt.train

SEED = 20
SCHEDULE_STEPS = 200
"""Fixed: a schedule that followed ``--steps`` would be another one when more steps are added."""


def dataset() -> TensorDataset:
    """Points, and which side of a curve they lie on."""
    points = torch.randn(4096, 2, generator=torch.Generator().manual_seed(SEED))
    return TensorDataset(points, (points[:, 1] > points[:, 0].sin()).long())


def main() -> None:
    """Train for ``--steps``; start it again, alone or with others, and it goes on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=SCHEDULE_STEPS)
    parser.add_argument("--checkpoint", default="output/checkpoints")
    options = parser.parse_args()

    torch.manual_seed(SEED)
    model = nn.Sequential(nn.Linear(2, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, SCHEDULE_STEPS)

    job = costopt.train.attach(
        model,
        optimizer,
        scheduler,
        dataset(),
        global_batch=64,
        virtual_shards=8,
        seed=SEED,
        clip_norm=1.0,
        checkpoint=options.checkpoint,
        interval_s=30.0,
    )
    for _ in job.steps(options.steps):
        for batch in job.microbatches():
            with job.microbatch(batch):
                points, sides = batch
                loss: Tensor = functional.cross_entropy(model(points), sides)
                job.observe(loss)
                loss.backward()  # type: ignore[no-untyped-call]
        job.apply()
        if job.rank == 0 and job.step % 50 == 0:
            print(f"step {job.step:4d}  loss {job.loss:.4f}  processes {job.size}", flush=True)
    if job.rank == 0:
        print(f"done after {job.step} steps; the result is {job.guarantee}")


if __name__ == "__main__":
    main()
