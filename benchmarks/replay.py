"""A 92 h backtest of one policy on one recorded trace, and what it costs against hindsight."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from costopt.backtesting.replay import replay
from costopt.controller.forecasts import DEFAULT_HAZARD
from costopt.market.hazard import LearnedHazard
from tests.support.cant_be_late import (
    OneMachine,
    OnePower,
    hindsight_usd,
    job,
    market,
    policy,
    read_trace,
)

TRACE = "availability_1-node_aws-02-15-2023_us-east-1a_v100_1.json"
STRATEGIES = ("on_demand", "greedy_spot", "uniform_progress", "milp", "adaptive")
SYNTHETIC_UP = [1, 1, 1, 1, 1, 0, 0, 1, 0, 0] * 200
SYNTHETIC_GAP_S = 195.0


def run() -> list[tuple[str, float, str]]:
    """Wall seconds and dollars per strategy; on made-up availability where no data are given."""
    data = os.environ.get("COSTOPT_DATA")
    if data is None:
        print("  COSTOPT_DATA is unset: made-up availability in place of the recorded trace")
        up, gap_s = SYNTHETIC_UP, SYNTHETIC_GAP_S
    else:
        up, gap_s = read_trace(Path(data) / "traces" / TRACE)
    history, task = market(up, gap_s), job(92, 0.1)
    task = replace(task, checkpoint=replace(task.checkpoint, interval_s=600.0))
    best_usd = hindsight_usd(task, policy("greedy_spot"), history, OneMachine())
    figures = [] if best_usd is None else [("92 h: hindsight optimum", best_usd, "$")]
    for name in STRATEGIES:
        began = time.perf_counter()
        done = replay(
            task,
            policy(name),
            history,
            machines=OneMachine(),
            powers=OnePower(),
            hazards=LearnedHazard(lambda _: DEFAULT_HAZARD),
        )
        figures.append((f"92 h: {name}, {done.ticks} ticks", time.perf_counter() - began, "s"))
        figures.append((f"92 h: {name}, spent", done.summary.usd, "$"))
    return figures
