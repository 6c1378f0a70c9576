"""Trainers as processes that start at once: forked from one that has imported torch."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tests.support.forked_commands import ONE_THREAD, TRAINERS, ForkedCommand

STEPS = 16
SHARDS = 8
BATCH = 16


def shard(step: int, number: int) -> Any:
    """Inputs and targets of one virtual shard."""
    import torch

    draw = torch.Generator().manual_seed(step * 1009 + number)
    inputs = torch.randn(BATCH // SHARDS, 12, generator=draw)
    return inputs, inputs.roll(1, dims=1).tanh()


def train(options: dict[str, Any]) -> None:
    """One trainer: dropout, normalizations of both kinds, a parameter that only some shards use.

    It may "hold" before steps, each until there is a file go-<step> beside its output; begin no
    step from [first, members] = "full" on with fewer members, but to let one in; and "doze": the
    first that comes as rank 0 to its last step stops itself (SIGSTOP) after the reduction, before
    the save, and leaves its pid in a file of that name. Its first look at HEAD may be answered by a
    pipe, "first_head". Before the step "flip" a bit of one weight changes, as in faulty memory.
    """
    import torch
    from torch import nn

    import costopt.train

    torch.set_num_threads(options.get("threads", 1))
    torch.manual_seed(os.getpid())
    model = nn.Sequential(
        nn.Linear(12, 24),
        nn.BatchNorm1d(24),
        nn.GELU(),
        nn.Dropout(0.2),
        nn.Linear(24, 12),
        nn.LayerNorm(12),
    )
    rare = nn.Parameter(torch.ones(12))
    model.register_parameter("rare", rare)
    if "initial" in options:
        torch.manual_seed(3)
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.get("total", STEPS))
    _answer_first_head(options.get("first_head"))
    job = costopt.train.attach(
        model,
        optimizer,
        scheduler,
        shard,
        global_batch=BATCH,
        virtual_shards=SHARDS,
        clip_norm=0.5,
        seed=7,
        mode=options.get("mode", "exact"),
        checkpoint=options.get("checkpoint"),
        interval_s=options.get("interval_s", 1e9),
    )
    optimizer.register_step_post_hook(lambda *_: _fail(job, rare, options))
    losses: dict[int, float] = {}
    steps: list[int] = []
    progress = Path(options["output"]).with_suffix(".step")
    for step in job.steps(options.get("total", STEPS)):
        while _waits(job, step, options):
            time.sleep(0.005)
        take_time(step, options)
        for batch in job.microbatches():
            with job.microbatch(batch):
                inputs, targets = batch
                found = model(inputs)
                if inputs[0, 0] > 0.5:
                    found = found * rare
                loss = (found - targets).square().mean()
                loss.backward()
                job.observe(loss)
        job.apply()
        steps.append(step)
        if job.step == step + 1 and job.loss is not None:
            losses[step] = job.loss
        progress.write_text(f"{job.step} {job.size}")
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.contiguous().numpy().tobytes())
    result = {
        "weights": digest.hexdigest(),
        "losses": losses,
        "steps": steps,
        "guarantee": job.guarantee,
        "regrouped": [[r.generation, r.size, r.step, r.pause_s, r.why] for r in job.regrouped],
    }
    Path(options["output"]).write_text(json.dumps(result))


def take_time(step: int, options: dict[str, Any]) -> None:
    """Pause before a step for "pace_s"; with "patience_s", the longer the nearer the end is.

    A few steps then last as long as all that a test does meanwhile, on whatever machine. Once there
    is the file "hurry", no step is waited for.
    """
    ends_at = time.monotonic() + options.get("pace_s", 0.0)
    if "patience_s" in options:
        ends_at += options["patience_s"] / (options["total"] - step)
    hurry = Path(options.get("hurry", "hurry"))
    while (left := ends_at - time.monotonic()) > 0 and not hurry.exists():
        time.sleep(min(0.05, left))


def _waits(job: Any, step: int, options: dict[str, Any]) -> bool:
    if step in options.get("hold", ()):
        return not Path(options["output"]).with_name(f"go-{step}").exists()
    first, members = options.get("full", (0, 0))
    return step >= first and job.size < members and not job._group.is_join_pending()


def _answer_first_head(pipe: str | None) -> None:
    if pipe is None:
        return
    from costopt.checkpoint import repository
    from costopt.store.folder import FileStore

    get = FileStore.get

    def answered(self: FileStore, key: str, max_bytes: int | None = None) -> bytes | None:
        if key != repository.KEY:
            return get(self, key, max_bytes)
        FileStore.get = get  # type: ignore[method-assign]
        return Path(pipe).read_bytes()

    FileStore.get = answered  # type: ignore[method-assign]


def _fail(job: Any, weight: Any, options: dict[str, Any]) -> None:
    import torch

    if job.step + 1 == options.get("flip"):
        weight.data.view(torch.int32)[5] ^= 1
    if "doze" in options and job.rank == 0 and job.step + 1 == job.total:
        with suppress(FileExistsError), Path(options["output"]).with_name("doze").open("x") as file:
            file.write(str(os.getpid()))
            file.flush()
            os.kill(os.getpid(), signal.SIGSTOP)


class TrainerFactory:
    """Starts trainers by forking; ``with`` ends those that are left."""

    def __init__(self, program: str = __file__) -> None:
        self._program = program
        self._started: dict[int, ForkedCommand] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def clear(self) -> None:
        """End every trainer that is left."""
        for trainer in self._started.values():
            trainer.kill()
            trainer.wait()
        self._started.clear()

    def start(self, env: dict[str, str], **options: Any) -> int:
        """The pid of a new trainer."""
        output = Path(options["output"])
        words = (self._program, json.dumps(options | {"output": str(output)}))
        variables = os.environ | ONE_THREAD | env
        trainer = ForkedCommand(words, Path.cwd(), variables, TRAINERS, output.with_suffix(".log"))
        self._started[trainer.pid] = trainer
        return trainer.pid

    def status(self, pid: int) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._started[pid].poll()

    def wait(self, pid: int, timeout_s: float = 180.0) -> int:
        """The exit code once it has ended."""
        return self._started[pid].wait(timeout_s)


def result(output: Path) -> dict[str, Any]:
    """What a trainer left behind."""
    found: dict[str, Any] = json.loads(output.read_text())
    return found


if __name__ == "__main__":
    train(json.loads(sys.argv[1]))
