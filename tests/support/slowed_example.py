"""train.py beside this file, slow while the file HOLD is there: slowed_example.py HOLD ARGUMENTS.

HOLD is reported the steps that were made.
"""

from __future__ import annotations

import runpy
import sys
import time
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

SLOW_S = 1.0


def main() -> None:
    """What a test does meanwhile, it does before the training ends."""
    from costopt.train import TrainingLoop

    hold = Path(sys.argv.pop(1))
    apply = TrainingLoop.apply

    def apply_slowly(loop: TrainingLoop) -> None:
        apply(loop)
        with suppress(FileNotFoundError), hold.open("r+") as reported:
            reported.write(str(loop.step))
            time.sleep(SLOW_S)

    with patch.object(TrainingLoop, "apply", apply_slowly):
        runpy.run_path("train.py", run_name="__main__")


if __name__ == "__main__":
    main()
