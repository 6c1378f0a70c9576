"""Hugging Face's Trainer with costopt's checkpoints: one line before training.

torchrun --standalone --nproc-per-node=auto train.py shards the model on GPUs (FSDP2); each process
saves its own shards, and any number of processes takes them up.
"""

from __future__ import annotations

import argparse

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from costopt.train.hugging_face import TrainerCheckpoints

SEED = 20


class Sequences(Dataset[dict[str, torch.Tensor]]):
    """Counting in a ring."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(16) + index) % 31
        return {"input_ids": tokens, "labels": tokens}


def build(epochs: int, steps: int, checkpoint: str, every: int, *, sharded: bool) -> Trainer:
    """Return a trainer of a tiny GPT-2 that goes on from its newest checkpoint."""
    torch.manual_seed(SEED)
    config = GPT2Config(vocab_size=31, n_positions=16, n_embd=32, n_layer=2, n_head=2)
    arguments = TrainingArguments(
        output_dir="output/hugging-face-logs",
        num_train_epochs=epochs,
        max_steps=steps,
        per_device_train_batch_size=4,
        save_strategy="no",
        report_to=[],
        logging_steps=10,
        use_cpu=not torch.cuda.is_available(),
        disable_tqdm=True,
        seed=SEED,
        fsdp="full_shard auto_wrap" if sharded else None,
        fsdp_config={"transformer_layer_cls_to_wrap": ["GPT2Block"]} if sharded else None,
    )
    trainer = Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Sequences())
    TrainerCheckpoints(trainer, checkpoint, every_steps=every)
    return trainer


def main() -> None:
    """Train for ``--epochs``, or ``--steps``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=-1)
    parser.add_argument("--checkpoint", default="output/checkpoints")
    parser.add_argument("--every", type=int, default=10)
    options = parser.parse_args()
    sharded = torch.cuda.device_count() > 1
    trainer = build(
        options.epochs, options.steps, options.checkpoint, options.every, sharded=sharded
    )
    print(f"ends at step {trainer.train().global_step}", flush=True)


if __name__ == "__main__":
    main()
