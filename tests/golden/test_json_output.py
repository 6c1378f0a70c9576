"""Which facts and which keys of its rows each command writes as JSON, in the order of CSV."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from costopt.checkpoint.commit import Committer, SaveRequest
from costopt.checkpoint.repository import CheckpointRepository
from costopt.cli.main import cli
from costopt.domain.control import Scope
from costopt.domain.market import CapacityType, Pool
from costopt.domain.policy import CarbonSignal
from costopt.energy.carbon import CarbonHistory
from costopt.energy.carbon_files import write_carbon
from costopt.ledger.sql_ledger import open_sqlite_ledger
from costopt.market.history_file import write_history
from tests.support.daemon_api import served
from tests.support.golden import check
from tests.support.market_fixtures import SPOT, T0, market, pool_history
from tests.support.sample_run import sample_events

JOB = """\
name: train
work: {amount: 3600, unit: samples}
deadline: 4h
resources: {gpu_models: [V100], min_nodes: 1, max_nodes: 1}
throughput: {points: [{gpu: V100, units_per_s: 30}]}
checkpoint: {uri: checkpoints, size_gib: 1, save: 60s, restore: 60s, interval: 30m}
startup: 60s
budget: {usd: 1}
"""
HOURS = 8
UNFIT = Pool("aws", "us-east-1", "us-east-1a", "g4dn.xlarge", CapacityType.SPOT)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job, a market, carbon intensities, checkpoints, and the ledger of a run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(JOB)
    other = JOB.replace("name: train", "name: other").replace("uri: checkpoints", "uri: other")
    (tmp_path / "other.yaml").write_text(other)
    (tmp_path / "account.yaml").write_text("quotas: [{name: all, max_nodes: 9}]\n")
    pools = SPOT, SPOT.with_capacity_type(CapacityType.ON_DEMAND), UNFIT
    histories = [pool_history(pool, [(0, 9, 1.0)], HOURS * 3600) for pool in pools]
    write_history(market(*histories, tick_s=600.0), tmp_path / "market.parquet")
    carbon = CarbonHistory(T0, {"US-MIDA-PJM": (1.0,)}, CarbonSignal.AVERAGE, "test")
    write_carbon(carbon, tmp_path / "carbon.parquet")
    files = {"state.bin": memoryview(b"weights")}
    Committer(CheckpointRepository.open("checkpoints"), 1).commit(SaveRequest(1, 1, 0.0, files, ()))
    with open_sqlite_ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.append(*sample_events("train"))
    return tmp_path


def test_json_output(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = (
        "plan job.yaml --market market.parquet",
        "what-if job.yaml --market market.parquet --points 2",
        "plan job.yaml other.yaml --market market.parquet --account account.yaml",
        "what-if job.yaml other.yaml --market market.parquet",
        "backtest job.yaml --market market.parquet --starts 1",
        "backtest job.yaml --market market.parquet --starts 1 --regret",
        "status --state-dir .",
        "events train --state-dir .",
        "explain train --state-dir .",
        "explain train last --state-dir .",
        "checkpoints list checkpoints",
        "checkpoints verify checkpoints",
        "catalog",
        "catalog --regions",
        "market show market.parquet",
        "carbon show carbon.parquet",
        "validate job.yaml",
        "doctor --state-dir .",
        "reconcile --market market.parquet --state-dir .",
    )
    with served(folder) as daemon:
        daemon.token(Scope.READ)
        monkeypatch.setenv("COSTOPT_SERVER", f"unix:{daemon.socket_path}")
        asked = "status", "status one", "status --upcoming", "daemon approve", "daemon token list"
        of_daemon = [_shape(each) for each in asked]
    monkeypatch.delenv("COSTOPT_SERVER")
    check("json_output", dict([*map(_shape, commands), *of_daemon]))


def _shape(command: str) -> tuple[str, dict[str, Any]]:
    """The schema, and the names of the facts and of the rows' fields."""
    result = json.loads(_stdout(f"{command} -o json"))
    schema, rows = result.pop("schema"), result.pop("rows")
    header = _stdout(f"{command} -o csv").splitlines()[0].split(",")
    assert all(list(row) == header for row in rows)
    return schema, {"facts": list(_paths(result)), "rows": header}


def _paths(value: Any, path: str = "") -> Iterator[str]:
    """Dotted names of the members; the items of an array are like its first."""
    if isinstance(value, list) and value:
        yield from _paths(value[0], path)
    elif isinstance(value, dict):
        for name, each in value.items():
            yield f"{path}{name}"
            yield from _paths(each, f"{path}{name}.")


def _stdout(command: str) -> str:
    done = CliRunner().invoke(cli, command.split())
    assert done.exit_code == 0, (command, done.stderr, done.exception)
    return done.stdout
