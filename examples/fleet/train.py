"""Fit a line by gradient descent on a slice of a node, or on several nodes.

It needs nothing but Python and what costopt's agent sets (``TrainerEnv``): it goes on from the
newest save, reports its progress, and saves and leaves on a notice. The GPUs are simulated: a step
takes ``--step-seconds`` on one and less on more, by the curve of the job files. Of a gang on
several nodes the first one saves.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

from costopt.protocol.trainer_files import SavedCheckpoint, TrainerEnv, TrainerState, TrainerStatus

POINTS = [(x / 10, 3.0 * x / 10 + 1.0) for x in range(20)]
RATE = 0.05
SAVE_EVERY = 20
GPUS = {"lab8": 8, "g4dn.12xlarge": 4}
SCALING = 1.7


class Training:
    """The model, its saves, and what is reported to the agent."""

    def __init__(self, output: Path) -> None:
        self.env = TrainerEnv.read()
        self.output = output
        self.leads = os.environ.get("RANK", "0") == "0"
        self.step, self.a, self.b = 0, 0.0, 0.0
        self.saves: tuple[SavedCheckpoint, ...] = ()
        output.mkdir(parents=True, exist_ok=True)
        newest = max(output.glob("step-*.json"), default=None)
        if newest is not None:
            saved = json.loads(newest.read_text(encoding="utf-8"))
            self.step, self.a, self.b = saved["step"], saved["a"], saved["b"]
            self.note_save(newest, time.time())

    def run(self, steps: int, step_s: float) -> None:
        """Train to the last step, or until asked to leave."""
        print(f"step {self.step} of {steps}, {1 / step_s:.1f} steps a second", flush=True)
        self.tell(TrainerState.TRAINING)
        while self.step < steps:
            time.sleep(step_s)
            self.descend()
            leaves = self.env.notice_file is not None and self.env.notice_file.exists()
            if leaves or self.step % SAVE_EVERY == 0 or self.step == steps:
                self.save()
            if leaves and self.step < steps:
                print(f"saved step {self.step}, and leaves", flush=True)
                self.tell(TrainerState.STOPPED)
                return
            self.tell(TrainerState.TRAINING, 1 / step_s)
        print(f"y = {self.a:.3f} x + {self.b:.3f}", flush=True)
        self.tell(TrainerState.FINISHED)

    def descend(self) -> None:
        """One step down the gradient of the mean squared error."""
        errors = [(self.a * x + self.b - y, x) for x, y in POINTS]
        self.a -= RATE * sum(error * x for error, x in errors) / len(errors)
        self.b -= RATE * sum(error for error, _ in errors) / len(errors)
        self.step += 1

    def save(self) -> None:
        """Write the model to a file that appears whole."""
        if not self.leads:
            return
        path = self.output / f"step-{self.step:06}.json"
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps({"step": self.step, "a": self.a, "b": self.b}))
        fresh.replace(path)
        self.note_save(path, time.time())

    def note_save(self, path: Path, at: float) -> None:
        """Remember a save of this step, also the one that it goes on from: it is what counts as
        saved."""
        size = path.stat().st_size
        saved = SavedCheckpoint(path.name, float(self.step), str(path), at, size, 0.01)
        self.saves = (*self.saves, saved)

    def tell(self, state: TrainerState, units_per_s: float | None = None) -> None:
        """Replace the status that the agent reads."""
        if self.env.status_file is None:
            return
        TrainerStatus(
            generation=self.env.generation,
            state=state,
            at=time.time(),
            done_units=float(self.step),
            saved_units=self.saves[-1].units if self.saves else 0.0,
            units_per_s=units_per_s,
            checkpoints=self.saves,
        ).write(self.env.status_file)


def gang_gpus() -> int:
    """Return the GPUs of the gang: a simulated node's record names its type, ``lab8:2`` a slice."""
    record = Path(os.environ["COSTOPT_NODE_FOLDER"]) / "node.json"
    pool = json.loads(record.read_text(encoding="utf-8"))["pool"]
    instance_type, _, gpus = pool.split("/")[3].partition(":")
    return int(gpus or GPUS[instance_type]) * int(os.environ.get("WORLD_SIZE", "1"))


def main() -> None:
    """Train as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--step-seconds", type=float, default=0.5, help="of a step on one GPU")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    doublings = gang_gpus().bit_length() - 1
    Training(options.output).run(options.steps, options.step_seconds / SCALING**doublings)


if __name__ == "__main__":
    main()
