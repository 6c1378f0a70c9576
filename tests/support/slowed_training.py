"""examples/finetune/train.py, slowed down: slowed_training.py PACE_S SLOWLY ARGUMENT…

Each step lasts PACE_S longer for as long as there is a file SLOWLY, so that a test decides how long
it trains, and not the machine.
"""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path

from costopt.train.loop import TrainingLoop

EXAMPLE = Path(__file__).parents[2] / "examples" / "finetune"


def _pace(pace_s: float, slowly: Path) -> None:
    apply = TrainingLoop.apply

    def paced(loop: TrainingLoop) -> None:
        if slowly.exists():
            time.sleep(pace_s)
        apply(loop)

    setattr(TrainingLoop, "apply", paced)  # noqa: B010 - a method, to mypy


if __name__ == "__main__":
    _pace(float(sys.argv.pop(1)), Path(sys.argv.pop(1)))
    sys.path.insert(0, str(EXAMPLE))
    runpy.run_path(str(EXAMPLE / "train.py"), run_name="__main__")
