"""What strategies cost against hindsight on the public availability traces."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from statistics import fmean

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

STRATEGIES = ("greedy_spot", "uniform_progress", "milp", "adaptive")
STARTS = (0.0, 0.4)


def run() -> list[tuple[str, float, str]]:
    """Mean ratio to the optimum: every other trace, two starts, 48 h of work due in 60 h."""
    data = os.environ.get("COSTOPT_DATA")
    if data is None:
        print("  COSTOPT_DATA is unset: strategies were not compared on the public traces")
        return []
    ratios: dict[str, list[float]] = {name: [] for name in STRATEGIES}
    late = 0
    for path in sorted((Path(data) / "traces").glob("*.json"))[::2]:
        up, gap_s = read_trace(path)
        history = market(up, gap_s)
        for share in STARTS:
            task = job(60, 0.1, start_s=int(share * len(up)) * gap_s)
            task = replace(task, checkpoint=replace(task.checkpoint, interval_s=600.0))
            best_usd = hindsight_usd(task, policy("greedy_spot"), history, OneMachine())
            assert best_usd is not None
            for name in STRATEGIES:
                done = replay(
                    task,
                    policy(name),
                    history,
                    machines=OneMachine(),
                    powers=OnePower(),
                    hazards=LearnedHazard(lambda _: DEFAULT_HAZARD),
                )
                ratios[name].append(done.summary.usd / best_usd)
                late += done.summary.on_time is not True
    runs = len(ratios["milp"])
    figures = [(f"{name}, mean of {runs} runs", fmean(ratios[name]), "×") for name in STRATEGIES]
    return [*figures, ("late", float(late), "runs")]
