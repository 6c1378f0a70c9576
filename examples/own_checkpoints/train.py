"""Fits a line by gradient descent, slowly. It has never heard of costopt.

It saves by its own means: every 50 steps and on SIGTERM, to a file that is replaced whole. It needs
nothing but Python.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from pathlib import Path
from types import FrameType

POINTS = [(x / 10, 3.0 * x / 10 + 1.0) for x in range(20)]
RATE = 0.05
SAVE_EVERY = 50


def main() -> int:
    """Train from the saved step on; 0 when all steps are done, 143 when told to leave."""
    options = _options()
    saved = options.output / "model.json"
    options.output.mkdir(parents=True, exist_ok=True)
    model = json.loads(saved.read_text()) if saved.exists() else {"step": 0, "a": 0.0, "b": 0.0}
    print(f"starting at step {model['step']}", flush=True)
    asked = _Asked()
    while model["step"] < options.steps:
        _step(model)
        time.sleep(options.pace)
        if asked.to_leave:
            _save(model, saved)
            print(f"saved step {model['step']} on SIGTERM", flush=True)
            return 128 + signal.SIGTERM
        if model["step"] % SAVE_EVERY == 0:
            _save(model, saved)
    _save(model, saved)
    print(f"y = {model['a']:.3f} x + {model['b']:.3f}", flush=True)
    return 0


class _Asked:
    """Whether SIGTERM has come: what every cluster sends before it takes a machine."""

    def __init__(self) -> None:
        self.to_leave = False
        signal.signal(signal.SIGTERM, self._hear)

    def _hear(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.to_leave = True


def _step(model: dict[str, float]) -> None:
    errors = [(model["a"] * x + model["b"] - y, x) for x, y in POINTS]
    model["a"] -= RATE * sum(error * x for error, x in errors) / len(errors)
    model["b"] -= RATE * sum(error for error, _ in errors) / len(errors)
    model["step"] += 1


def _save(model: dict[str, float], path: Path) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(model))
    fresh.replace(path)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--pace", type=float, default=0.01, help="seconds of sleep in each step")
    parser.add_argument("--output", type=Path, default=Path("output"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
