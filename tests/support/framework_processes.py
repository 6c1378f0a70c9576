"""Trainings by Hugging Face's Trainer or torchtitan's parts, forked from a process that imports it.

``python -m tests.support.framework_processes FOLDER FRAMEWORK PLAN…``; FRAMEWORK is
``hugging_face`` or ``torchtitan``. A plan is a run, processes and steps, as in ``once,2,6``, and
the step in which SIGTERM comes, if it does: ``twice,2,6,3``. Each process writes what it holds in
the end to FOLDER/RUN/rankN.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import IterableDataset

from costopt.train import TrainingExit
from tests.support.sharded_processes import WIDTH, build, digest, fork


def place() -> tuple[int, int]:
    """This process' rank, and how many there are."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def note(folder: Path, step: int, rates: list[float], model: Any, optimizer: Any) -> None:
    """Write what this process holds."""
    with (folder / f"rank{place()[0]}").open("a") as file:
        file.write(f"{step} {rates[0]:.9f} {digest(model, optimizer)}\n")


def train_hugging_face(folder: Path, steps: int, notice: int) -> None:
    """The example; on several processes the model is sharded."""
    state = importlib.import_module("accelerate.state")
    types = importlib.import_module("accelerate.utils").DistributedType
    callback: Any = importlib.import_module("transformers").TrainerCallback
    begin = state.AcceleratorState.__init__

    def allow_fsdp_on_cpus(self: Any, *args: Any, **given: Any) -> None:
        """Accelerate ignores FSDP where there is no accelerator."""
        begin(self, *args, **given)
        if given.get("fsdp_plugin") is not None:
            self.distributed_type = types.FSDP
            self.fsdp_plugin = given["fsdp_plugin"]

    class NoticeAt(callback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step + 1 == notice:
                os.kill(os.getpid(), signal.SIGTERM)

    state.AcceleratorState.__init__ = allow_fsdp_on_cpus
    rank, world = place()
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
    }
    example = importlib.import_module("examples.hugging_face.train")
    trainer = example.build(1, steps, str(folder / "checkpoints"), 4, sharded=world > 1)
    trainer.add_callback(NoticeAt())
    with suppress(TrainingExit):
        trainer.train()
    rates = trainer.lr_scheduler.get_last_lr()
    note(folder, trainer.state.global_step, rates, trainer.model, trainer.optimizer.optimizer)


class Titan:
    """As torchtitan's trainer, with its own parts but for the model: its own needs a GPU."""

    def __init__(self, folder: Path, steps: int) -> None:
        parts = importlib.import_module("torchtitan.components.optimizer")
        loaders = importlib.import_module("torchtitan.components.dataloader")
        manager = importlib.import_module("costopt.train.torchtitan").TorchtitanCheckpoints
        rank, world = place()
        self.step = self.ntokens_seen = 0
        self.config = self.training = self
        self.steps = steps
        self.model, _ = build("one" if world == 1 else f"fsdp{world}")
        self.model.eval()  # running statistics are each rank's own
        group = parts.ParamGroupConfig(
            pattern=".*", optimizer_name="AdamW", optimizer_kwargs={"lr": 0.01}
        )
        self.optimizers = parts.OptimizersContainer.Config(param_groups=[group]).build(
            model_parts=[self.model]
        )
        self.schedule = parts.LRSchedulersContainer.Config(warmup_steps=2).build(
            optimizers=self.optimizers, training_steps=20
        )
        self.data = loaders.ParallelAwareDataloader(Numbers(rank), rank, world, batch_size=4)
        config = manager.Config(enable=True, folder="checkpoints", interval=4)
        self.checkpointer = config.build(
            dataloader=self.data,
            model_parts=[self.model],
            optimizers=self.optimizers,
            lr_schedulers=self.schedule,
            states={"train_state": self},
            sd_adapter=None,
            base_folder=str(folder),
        )

    def state_dict(self) -> dict[str, Any]:
        """The position."""
        return {"step": self.step, "ntokens_seen": self.ntokens_seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on there."""
        self.step, self.ntokens_seen = state["step"], state["ntokens_seen"]

    def train(self, notice: int) -> None:
        """The loop of its trainer."""
        self.checkpointer.load(step=-1)
        batches = iter(self.data)
        while self.step < self.steps:
            self.step += 1
            batch = next(batches)
            if self.step == notice:
                os.kill(os.getpid(), signal.SIGTERM)
            self.optimizers.zero_grad()
            self.model(batch).square().mean().backward()
            self.checkpointer.maybe_wait_for_staging()
            self.optimizers.step()
            self.schedule.step()
            self.checkpointer.save(self.step, last_step=self.step == self.steps)


class Numbers(IterableDataset[torch.Tensor]):
    """This rank's samples; its position is its state."""

    def __init__(self, rank: int) -> None:
        self._rank, self._next = rank, 0

    def __iter__(self) -> Any:
        while True:
            self._next += 1
            yield torch.full((WIDTH,), 0.01 * self._next + self._rank)

    def state_dict(self) -> dict[str, Any]:
        """The position."""
        return {"next": self._next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on there."""
        self._next = state["next"]


def train_torchtitan(folder: Path, steps: int, notice: int) -> None:
    """With torchtitan's own parts."""
    trainer = Titan(folder, steps)
    with suppress(TrainingExit):
        trainer.train(notice)
    (optimizer,) = trainer.optimizers
    rates = [group["lr"] for group in optimizer.param_groups]
    note(folder, trainer.step, rates, trainer.model, optimizer)
    trainer.checkpointer.close()


if __name__ == "__main__":
    where, framework, *plans = sys.argv[1:]
    importlib.import_module(f"costopt.train.{framework}")
    trainings = {"hugging_face": train_hugging_face, "torchtitan": train_torchtitan}
    for plan in plans:
        run, processes, *steps = plan.split(",")
        until, at = (*map(int, steps), 0)[:2]
        target = Path(where) / run
        target.mkdir(exist_ok=True)
        fork(int(processes), target, partial(trainings[framework], target, until, at))
