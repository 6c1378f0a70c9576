"""The market that costopt ships as ``sample``, on every command that takes a market."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from benchmarks.sample_market import PRICES, sample_market
from costopt.market.history_file import market_path, read_history, write_history
from tests.support.command_line import invoke
from tests.support.market_fixtures import SPOT, pool_history
from tests.support.market_fixtures import market as market_of

SAMPLE = Path("sample")
MAX_BYTES = 200_000
JOB = """\
name: sampled
work: {amount: 2.0e+7, unit: tokens}
deadline: 6h
resources: {gpu_models: [L4], min_gpus: 4, max_nodes: 1}
throughput: {flops_per_unit: 4.8e+10, mfu: 0.38}
checkpoint: {uri: checkpoints}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a job, and a folder of the market's name, which is not meant by it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "sample").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        ("plan", "job.yaml"),
        ("what-if", "job.yaml", "--points", "0"),
        ("backtest", "job.yaml", "--starts", "2"),
        ("run", "job.yaml"),
    ],
    ids=lambda command: command[0],
)
def test_commands_take_its_name(command: tuple[str, ...]) -> None:
    done = invoke(*command, "--market", "sample", "--output", "json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["job"] == "sampled"


def test_market_show_says_what_of_it_is_modelled() -> None:
    shown = json.loads(invoke("market", "show", "sample", "--output", "json").stdout)
    assert shown["name"] == "sample"
    assert "modelled" in shown["source"]


def test_a_file_of_its_name_is_taken_first(folder: Path) -> None:
    (folder / "sample").rmdir()
    own = market_of(pool_history(SPOT, [(0, 4, 1.0)], 3600))
    write_history(own, folder / "sample")
    assert read_history(SAMPLE).pools.keys() == own.pools.keys()


def test_it_is_small_and_has_a_grid() -> None:
    assert market_path(SAMPLE).stat().st_size < MAX_BYTES
    history = read_history(SAMPLE)
    assert history.tick_s == 600.0
    machines = {pool.instance_type for pool in history.pools}
    assert machines == {"a3-highgpu-8g", "a2-ultragpu-8g", "g2-standard-48"}


@pytest.mark.skipif("COSTOPT_DATA" not in os.environ, reason="COSTOPT_DATA names no folder")
def test_it_is_what_its_script_makes_of_the_recorded_prices(tmp_path: Path) -> None:
    made = sample_market(Path(os.environ["COSTOPT_DATA"]) / PRICES)
    shipped = read_history(SAMPLE)
    assert (made.pools, made.tick_s, made.source) == (
        shipped.pools,
        shipped.tick_s,
        shipped.source,
    )
