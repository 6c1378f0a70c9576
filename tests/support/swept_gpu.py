"""A GPU whose speed and draw follow its power limit, for agents and trainers that are processes.

``SweptGpu`` puts a stand-in for nvidia-smi, one for the package pynvml and a trainer into a folder.
They follow a curve of (limit in W, share of the speed, W drawn), linear in between.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.support.fake_nvidia_smi import FakeNvidiaSmi
from tests.support.node_folder import ROOT
from tests.support.power_curves import QUADRO_RTX_6000, Curve

NVML = """\
import json, time
STATE, CURVE = {state!r}, {curve!r}
class NVMLError(Exception): pass
class NVMLError_NotSupported(NVMLError): pass
used, at = 0.0, time.monotonic()
def now(column):
    limit = json.load(open(STATE))["limits"]["0"]
    for low, high in zip(CURVE, CURVE[1:]):
        if limit <= high[0]:
            share = (limit - low[0]) / (high[0] - low[0])
            return low[column] + share * (high[column] - low[column])
    return CURVE[-1][column]
def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlDeviceGetCount(): return 1
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetTotalEnergyConsumption(gpu):
    global used, at
    passed, at = time.monotonic() - at, time.monotonic()
    used += passed * now(2) * 1000
    return int(used)
def nvmlDeviceGetPowerUsage(gpu): return int(now(2) * 1000)
def nvmlDeviceGetUtilizationRates(gpu): raise NVMLError_NotSupported
def nvmlDeviceGetMemoryInfo(gpu): raise NVMLError_NotSupported
"""
METERED = """\
import sys
if "costopt.agent" in sys.orig_argv and "--meter" in sys.argv:
    at = sys.argv.index("--meter")
    del sys.argv[at : at + 2]
"""
"""Each of the test's nodes has a meter of its own, which the simulated provider cannot know."""
TRAINER = """\
import pynvml, sys, time
from costopt.protocol.trainer_files import TrainerEnv, TrainerState, TrainerStatus
env, speed, done, at = TrainerEnv.read(), float(sys.argv[1]), 0.0, time.time()
while not (env.notice_file and env.notice_file.exists()):
    time.sleep(0.05)
    passed, at = time.time() - at, time.time()
    rate = speed * pynvml.now(1)
    done += passed * rate
    TrainerStatus(env.generation, TrainerState.TRAINING, at, done_units=done, units_per_s=rate,
                  resumed_units=0.0).write(env.status_file)
"""


class SweptGpu:
    """``environment`` is for the process that starts agents or is one."""

    def __init__(self, folder: Path, curve: Curve = QUADRO_RTX_6000) -> None:
        lowest_w, self.limit_w = curve[0][0], curve[-1][0]
        self.curve = curve
        self.tool = FakeNvidiaSmi(folder)
        self.tool.become({"0": self.limit_w}, range_w=(lowest_w, self.limit_w))
        state = str(folder / "state.json")
        (folder / "pynvml.py").write_text(NVML.format(state=state, curve=curve))
        (folder / "sitecustomize.py").write_text(METERED)
        (folder / "trainer.py").write_text(TRAINER)
        self.environment = {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT), str(ROOT / "providers")]),
        }

    def trainer(self, units_per_s: float) -> list[str]:
        """The command of a trainer that is so fast without a limit, against wall time."""
        return [sys.executable, str(self.tool.folder / "trainer.py"), str(units_per_s)]

    @property
    def is_limited(self) -> bool:
        """Whether a limit is set."""
        return self.tool.limits_w != [self.limit_w]
