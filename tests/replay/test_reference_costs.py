"""The engine reproduces the published costs of the "Can't Be Late" benchmark to the cent."""

from __future__ import annotations

import csv
import gzip
import os
import random
from pathlib import Path

import pytest

from costopt.backtesting.replay import replay
from tests.support.cant_be_late import (
    NoHazard,
    OneMachine,
    OnePower,
    hindsight_usd,
    job,
    market,
    policy,
    read_trace,
)
from tests.support.exhaustive import COMMIT

DATA = os.environ.get("COSTOPT_DATA")
SAMPLE = 3
POLICIES = {
    "OnDemand": policy("on_demand"),
    "Greedy_NSDI": policy("greedy_spot"),
    "UP_NSDI": policy("uniform_progress"),
    "UP_no_hyst": policy("uniform_progress", hysteresis=False),
}

pytestmark = pytest.mark.skipif(
    DATA is None, reason="COSTOPT_DATA is unset: the published costs were not checked"
)
Case = tuple[str, int, float, float]


def _reference() -> dict[Case, dict[str, float]]:
    costs: dict[Case, dict[str, float]] = {}
    with gzip.open(Path(DATA or "") / "deadline_reference_costs.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            case = (
                row["file"],
                int(row["start_tick"]),
                float(row["deadline_h"]),
                float(row["overhead_h"]),
            )
            costs.setdefault(case, {})[row["policy"]] = float(row["cost_usd"])
    return costs


def test_published_costs_are_reproduced() -> None:
    reference = _reference()
    cases = random.Random(COMMIT).sample(sorted(reference), SAMPLE)
    for case in cases:
        name, start_tick, deadline_h, overhead_h = case
        up, gap_s = read_trace(Path(DATA or "") / "traces" / name)
        history = market(up, gap_s)
        task = job(deadline_h, overhead_h, start_s=start_tick * gap_s)
        best = hindsight_usd(task, policy("greedy_spot"), history, OneMachine())
        assert best == pytest.approx(reference[case]["OMNISCIENT"], abs=0.005), case
        for published, ours in POLICIES.items():
            run = replay(
                task,
                ours,
                history,
                machines=OneMachine(),
                powers=OnePower(),
                hazards=NoHazard(),
                cooldown_s=0.0,  # the published policies know none
            )
            usd = run.summary.usd_micros / 1e6
            assert usd == pytest.approx(reference[case][published], abs=0.005), (case, published)
            assert run.summary.on_time is True, (case, published)
