"""A trainer without torch whose state is its step: committing_trainer.py STEPS.

It resumes from what HEAD names first, and writes the step with which it begins into ``begins``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from costopt.checkpoint.commit import Committer, SaveRequest
from costopt.checkpoint.identity import detect_identity
from costopt.checkpoint.repository import CheckpointRepository
from costopt.protocol.trainer_files import SavedCheckpoint, TrainerEnv, TrainerState, TrainerStatus


def main() -> None:
    """Resume, and commit the last step."""
    env, steps = TrainerEnv.read(), int(sys.argv[1])
    assert env.checkpoint_uri is not None
    assert env.status_file is not None
    place = CheckpointRepository.open(env.checkpoint_uri, detect_identity())
    names, _ = place.candidates()
    with Path("begins").open("a") as file:
        file.write(f"{env.job} {names[0].step if names else 0}\n")
    saving = SaveRequest(steps, 1, time.monotonic(), {"state.bin": memoryview(b"weights")})
    name = str(Committer(place, env.generation).commit(saving).name)
    saved = SavedCheckpoint(name, float(steps), place.path(name), time.time())
    done = float(steps)
    TrainerStatus(
        env.generation,
        TrainerState.FINISHED,
        time.time(),
        done_units=done,
        saved_units=done,
        checkpoints=(saved,),
    ).write(env.status_file)


if __name__ == "__main__":
    main()
