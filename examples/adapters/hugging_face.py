"""Hugging Face's Trainer with costopt's checkpoints: a callback, and one line before training."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any, cast

import torch
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from costopt.train import Checkpointer

SEED = 20


class CostoptCallback(TrainerCallback):
    """Saves every ``every`` steps, and on the agent's notice, after which training ends."""

    def __init__(self, trainer: Any, checkpointer: Checkpointer, every: int) -> None:
        self._trainer, self._checkpointer, self._every = trainer, checkpointer, every
        notice = os.environ.get("COSTOPT_NOTICE_FILE")
        self._notice_file = None if notice is None else Path(notice)

    def restore(self) -> int:
        """Take up the newest checkpoint, before ``train``; returns its step."""
        trainer, restored = self._trainer, self._checkpointer.restore()
        if restored is None:
            return 0
        trainer.create_optimizer_and_scheduler(trainer.args.max_steps)
        trainer.model.load_state_dict(restored.state["model"])
        trainer.optimizer.load_state_dict(restored.state["optimizer"])
        trainer.lr_scheduler.load_state_dict(restored.state["scheduler"])
        trainer.train_dataset.first = restored.state["step"] * trainer.args.train_batch_size
        trainer.args.max_steps -= restored.state["step"]
        return int(restored.state["step"])

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **_: Any,
    ) -> TrainerControl:
        """Called after each optimizer step."""
        stop = self._notice_file is not None and self._notice_file.exists()
        ends = state.global_step >= args.max_steps
        if state.is_world_process_zero and (stop or ends or state.global_step % self._every == 0):
            self._save(
                self._trainer.train_dataset.first // args.train_batch_size + state.global_step
            )
        control.should_training_stop = control.should_training_stop or stop
        return control

    def _save(self, step: int) -> None:
        trainer = self._trainer
        state = {
            "model": trainer.model.state_dict(),
            "optimizer": trainer.optimizer.state_dict(),
            "scheduler": trainer.lr_scheduler.state_dict(),
            "step": step,
        }
        self._checkpointer.save(step, state)
        print(f"saved step {step}", flush=True)


class Sequences(Dataset[dict[str, torch.Tensor]]):
    """Counting in a ring; the sample follows from its number, counted from ``first``."""

    def __init__(self, length: int) -> None:
        self.first = 0
        self._length = length

    def __len__(self) -> int:
        return self._length - self.first

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(16) + self.first + index) % 31
        return {"input_ids": tokens, "labels": tokens}


class InOrder(Trainer):
    """Samples in the order of their numbers, so that a position is all there is to resume."""

    def _get_train_sampler(self, *_: Any) -> torch.utils.data.Sampler[int]:
        return torch.utils.data.SequentialSampler(cast("Sequences", self.train_dataset))


def main() -> None:
    """Train a tiny GPT-2, made here, for ``--steps``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--checkpoint", default="output/hugging-face")
    parser.add_argument("--every", type=int, default=10)
    options = parser.parse_args()
    torch.manual_seed(SEED)
    config = GPT2Config(vocab_size=31, n_positions=16, n_embd=32, n_layer=2, n_head=2)
    arguments = TrainingArguments(
        output_dir="output/hugging-face-logs",
        max_steps=options.steps,
        per_device_train_batch_size=4,
        save_strategy="no",
        report_to=[],
        logging_steps=10,
        use_cpu=not torch.cuda.is_available(),
        disable_tqdm=True,
        seed=SEED,
    )
    samples = Sequences(options.steps * arguments.train_batch_size)
    trainer = InOrder(model=GPT2LMHeadModel(config), args=arguments, train_dataset=samples)
    uri = os.environ.get("COSTOPT_CHECKPOINT_URI", options.checkpoint)
    callback = CostoptCallback(trainer, Checkpointer(uri), options.every)
    trainer.add_callback(callback)
    print(f"begins at step {callback.restore()}", flush=True)
    if trainer.args.max_steps > 0:
        trainer.train()


if __name__ == "__main__":
    main()
