"""A trainer without torch: s3_trainer.py STEPS PACE_S HOLD [HELD_AT].

It saves its count in the job's store, and does not go beyond step HELD_AT, else the last but one,
while the file HOLD is there. Of a node's processes one for each GPU, the first counts and reports.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from costopt.protocol.trainer_files import SavedCheckpoint, TrainerEnv, TrainerState, TrainerStatus
from costopt.store import open_store

SAVE_EVERY = 10


def main(steps: int, pace_s: float, hold: Path, held_at: int) -> None:
    """Count from the newest save on; save now and then, when told to stop, and at the end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # without cgroups, Slurm sends it to all
    env = TrainerEnv.read()
    assert env.checkpoint_uri is not None
    assert env.status_file is not None
    assert env.notice_file is not None
    status_file = env.status_file
    if os.environ.get("LOCAL_RANK", "0") != "0":
        await_end(status_file, pace_s)
        return
    store = open_store(env.checkpoint_uri)
    begun = step = max((int(key.split("-")[1]) for key in store.keys("step-")), default=0)
    saves: tuple[SavedCheckpoint, ...] = ()

    def tell(state: TrainerState) -> None:
        TrainerStatus(
            generation=env.generation,
            state=state,
            at=time.time(),
            done_units=float(step),
            saved_units=saves[-1].units if saves else float(begun),
            units_per_s=1 / pace_s if state is TrainerState.TRAINING else None,
            checkpoints=saves,
        ).write(status_file)

    while step < steps:
        time.sleep(pace_s)
        stops = env.notice_file.exists()
        held = step >= held_at and hold.exists()
        if held and not stops:
            tell(TrainerState.TRAINING)
            continue
        if not held:  # the others of a gang do not go on, either
            step += 1
        if stops or step % SAVE_EVERY == 0 or step == steps:
            name = f"step-{step:06d}"
            store.put(name, b"{}")
            saved = SavedCheckpoint(name, float(step), env.checkpoint_uri, time.time(), 2, 0.01)
            saves = (*saves, saved)
            print(f"saved {name}", flush=True)  # noqa: T201 - what its log holds
        if stops:
            tell(TrainerState.STOPPED)
            return
        tell(TrainerState.TRAINING)
    tell(TrainerState.FINISHED)


def await_end(status_file: Path, pace_s: float) -> None:
    """Return when the node's first process has stopped or finished."""
    ended = (TrainerState.STOPPED, TrainerState.FINISHED)
    while (status := TrainerStatus.read(status_file)) is None or status.state not in ended:
        time.sleep(pace_s)


if __name__ == "__main__":
    last = int(sys.argv[4]) if len(sys.argv) > 4 else int(sys.argv[1]) - 1
    main(int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]), last)
