"""A trainer without torch: counts steps, saves its count now and then, heeds notices.

counting_trainer.py STEPS SECONDS_PER_STEP FOLDER: rank 0 saves step-<n>.json into FOLDER. Every
rank writes a line to FOLDER/starts when it begins, with the step at which it does. While there is
FOLDER.hold, it stays before the step whose number that file holds.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from costopt.protocol.trainer_files import SavedCheckpoint, TrainerEnv, TrainerState, TrainerStatus
from costopt.store.atomic_file import write_atomic

SAVE_EVERY = int(os.environ.get("STEPPER_SAVE_EVERY", "10"))
LAST_SAVE_S = float(os.environ.get("STEPPER_LAST_SAVE_S", "0"))
"""How long the save on a notice takes."""


def hold(folder: Path, before_step: int) -> None:
    """However long all else takes, the trainer does not come to this step until ``let_go``."""
    write_atomic(_hold_of(folder), str(before_step).encode())


def let_go(folder: Path) -> None:
    """The trainer goes on to its end."""
    _hold_of(folder).unlink()


def _hold_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.hold")


class CountingTrainer:
    """Counts."""

    def __init__(self, folder: Path) -> None:
        self.env = TrainerEnv.read()
        self.folder = folder
        self.leads = os.environ.get("RANK", "0") == "0"
        self.saves: tuple[SavedCheckpoint, ...] = ()
        folder.mkdir(parents=True, exist_ok=True)
        self.step = max((int(p.stem.split("-")[1]) for p in folder.glob("step-*.json")), default=0)
        self.found = float(self.step)
        with (folder / "starts").open("a") as starts:
            starts.write(f"{self.env.generation} {self.env.node} {self.step}\n")

    def run(self, steps: int, pace_s: float) -> None:
        while self.step < steps:
            time.sleep(pace_s)
            steps_on = not self.is_held()
            self.step += steps_on
            due = steps_on and (self.step % SAVE_EVERY == 0 or self.step == steps)
            stops = self.env.notice_file is not None and self.env.notice_file.exists()
            if stops:
                time.sleep(LAST_SAVE_S)
            if stops or due:
                self.save()
            if stops:
                self.tell(TrainerState.STOPPED)
                return
            self.tell(TrainerState.TRAINING, 1 / pace_s)
        self.tell(TrainerState.FINISHED)

    def is_held(self) -> bool:
        with suppress(FileNotFoundError):
            return self.step + 1 >= int(_hold_of(self.folder).read_text())
        return False

    def save(self) -> None:
        path = self.folder / f"step-{self.step}.json"
        if self.leads:
            write_atomic(path, b"{}")
            fresh = SavedCheckpoint(path.name, float(self.step), str(path), time.time(), 2, 0.01)
            self.saves = (*self.saves, fresh)

    def tell(self, state: TrainerState, units_per_s: float | None = None) -> None:
        if self.env.status_file is not None:
            TrainerStatus(
                generation=self.env.generation,
                state=state,
                at=time.time(),
                done_units=float(self.step),
                saved_units=self.saves[-1].units if self.saves else self.found,
                units_per_s=units_per_s,
                checkpoints=self.saves,
            ).write(self.env.status_file)


if __name__ == "__main__":
    CountingTrainer(Path(sys.argv[3])).run(int(sys.argv[1]), float(sys.argv[2]))
