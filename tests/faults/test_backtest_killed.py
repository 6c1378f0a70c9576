"""A backtest that is killed leaves no process behind, and the next one goes on with its scores."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from costopt.backtesting.executors import run_in_processes
from costopt.backtesting.trial import BacktestConfig, Trial, Window
from costopt.domain.errors import CostoptError
from costopt.domain.ports import PowerModel
from costopt.market.history_file import write_history
from tests.cli.test_backtest import JOB, POLICY, recorded
from tests.support.cant_be_late import NoHazard, market
from tests.support.engine_fixtures import Machines, rules, task
from tests.support.errors import has_code
from tests.support.live_run import PATIENCE_S, wait_until

MAIN = "from costopt.cli.main import main; main()"
HELD = f"""
import signal
from itertools import count
from costopt.backtesting.results_file import ResultsFile
add, number = ResultsFile.add, count(1)
def add_and_hold(self, key, score):
    add(self, key, score)
    if next(number) == 4:
        print("held", flush=True)
        signal.pause()
ResultsFile.add = add_and_hold
{MAIN}
"""


def dies() -> PowerModel:
    """Takes its process down, as a want of memory does."""
    os._exit(9)


def test_a_process_that_dies_is_reported() -> None:
    record = market([1] * 400, 600.0)
    config = BacktestConfig({record.name: record}, Machines(), dies, NoHazard)
    trials = [Trial(Window(record.name, task()), rules("greedy_spot")) for _ in range(2)]
    with pytest.raises(CostoptError, check=has_code("process_died")) as caught:
        list(run_in_processes(config, trials, 2))
    assert "--results" in (caught.value.hint or "")


def test_a_killed_backtest_is_gone_on_with(tmp_path: Path) -> None:
    write_history(recorded(), tmp_path / "market.parquet")
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "greedy.yaml").write_text(POLICY)
    with _backtest(tmp_path, HELD) as begun:
        assert begun.stdout is not None
        assert begun.stdout.readline() == "held\n"
        workers = _children(begun.pid)
        begun.kill()
    assert len(workers) >= 2
    wait_until(lambda: not any(map(_is_alive, workers)), "end of the workers")
    with _backtest(tmp_path, MAIN) as again:
        out, err = again.communicate(timeout=PATIENCE_S)
    assert again.returncode == 0, err
    assert "4 of 200 runs are already in it" in err
    assert '"windows": 40' in out


def _backtest(folder: Path, code: str) -> subprocess.Popen[str]:
    words = (
        "backtest", "job.yaml", "--market", "market.parquet", "--policies", "greedy.yaml",
        "--starts", "40", "--jobs", "2", "--results", "scores.jsonl", "-o", "json",
    )  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _children(parent: int) -> list[int]:
    """Processes whose parent this is, as Linux tells."""
    reported = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    return [int(word) for word in reported.split()]


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
