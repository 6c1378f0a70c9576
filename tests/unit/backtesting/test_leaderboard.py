"""Traces of the public leaderboards, in which 1 is a tick without capacity."""

import json
from pathlib import Path

import pytest

from benchmarks.leaderboard import ONE_ZONE, WINDOWS_IN_A_ZONE, ZONES, run
from benchmarks.trials import Effort


def _write(path: Path, lost: list[int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": lost}))


@pytest.mark.slow
def test_runs_where_a_trace_says_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COSTOPT_DATA", raising=False)
    monkeypatch.setattr("benchmarks.leaderboard.CONFIGURATIONS", ((52.0, 0.1),))
    always_up = [0] * 430
    for zone in ZONES:
        for number in range(WINDOWS_IN_A_ZONE):
            _write(tmp_path / ONE_ZONE / zone / f"traces/random_start/{number}.json", always_up)

    figures = {name: value for name, value, _ in run(tmp_path, Effort(sample=1, jobs=1))}

    assert figures["one zone: adaptive: late"] == 0
    assert figures["one zone: adaptive: score"] > 99
    assert figures["one zone, 52 h, 0.1 h: adaptive"] < 1.001
