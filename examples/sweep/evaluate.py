"""Train a small regression with one learning rate, width and seed; report its loss.

The command of each task of job.yaml. It needs nothing but Python.
"""

import argparse
import json
import math
import os
import random
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--width", type=int, required=True)
parser.add_argument("--seed", type=int, required=True)
parser.add_argument("--seconds", type=float, default=4.0)
options = parser.parse_args()

draw = random.Random(options.seed)  # noqa: S311
frequencies = [draw.uniform(0.5, 4.0) for _ in range(options.width)]
weights = [0.0] * options.width
begun, loss, steps = time.monotonic(), 1.0, 400
for step in range(steps):
    x = draw.uniform(-1.0, 1.0)
    features = [math.sin(f * x) for f in frequencies]
    error = sum(w * f for w, f in zip(weights, features, strict=True)) - math.sin(3.0 * x)
    weights = [w - options.lr * error * f for w, f in zip(weights, features, strict=True)]
    loss = 0.98 * loss + 0.02 * error * error
    if step % 100 == 99:
        print(f"step {step + 1}: loss {loss:.4f}", flush=True)
    time.sleep(max(0.0, begun + options.seconds * (step + 1) / steps - time.monotonic()))

# A task's result is the JSON object that it leaves here.
result = {"loss": round(loss, 6), "steps": steps}
Path(os.environ["COSTOPT_RESULT_FILE"]).write_text(json.dumps(result), encoding="utf-8")
