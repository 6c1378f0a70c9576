"""costopt plan on what cannot work: one message, the right exit code, never a traceback."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from costopt.cli.main import cli
from costopt.market.history_file import write_history
from tests.support.market_fixtures import ON_DEMAND, SPOT, market, pool_history

JOB = """\
name: train
work: {amount: 2000000, unit: samples}
deadline: 48h
resources: {gpu_models: [V100, T4], min_nodes: 1, max_nodes: 1}
throughput: {points: [{gpu: V100, units_per_s: 30}, {gpu: T4, units_per_s: 12}]}
checkpoint: {uri: checkpoints, size_gib: 5, save: 30s, restore: 60s}
"""


def plan(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["plan", *(str(argument) for argument in arguments)])


def refused(done: Result, code: int, said: str) -> None:
    assert done.exit_code == code, done.stderr
    assert said in done.stderr
    assert done.stderr.count("error:") == 1
    assert "Traceback" not in done.stderr
    assert "unexpected" not in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "code", "said"),
    [
        ("gpu: T4", "gpu: T5", 2, "'T5' is not in the catalogue; did you mean 'T4'?"),
        ("48h", "2020-01-01T00:00:00Z", 2, "is in the past"),
        ("48h", "2h", 3, "deadline: job 'train' needs"),
        ("2000000", "1e12", 3, "deadline: job 'train' needs"),
        ("2000000", "1e300", 2, "expected a size between"),
        ("2000000", "0", 2, "expected greater than 0"),
        ("2000000", ".nan", 2, "expected a finite number"),
        ("checkpoint:", "budget: {usd: 0.01}\ncheckpoint:", 3, "budget: the max_usd of 0.01"),
        ("checkpoint:", "budget: {kwh: 0.01}\ncheckpoint:", 3, "budget: the max_kwh of 0.01"),
        ("throughput:", "env:", 2, "throughput: is missing"),
        ("name: train", "name: !!python/object/apply:os.system [ls]", 2, "is not allowed"),
    ],
)
def test_a_job_that_cannot_be_planned(
    tmp_path: Path, old: str, new: str, code: int, said: str
) -> None:
    assert old in JOB
    (tmp_path / "job.yaml").write_text(JOB.replace(old, new))
    refused(plan(tmp_path / "job.yaml"), code, said)


@pytest.mark.parametrize("amount", ["1e-12", "1e-9", "1e-5", "1"])
def test_the_tiniest_job_has_a_plan(tmp_path: Path, amount: str) -> None:
    (tmp_path / "job.yaml").write_text(JOB.replace("2000000", amount))
    done = plan(tmp_path / "job.yaml", "-o", "json")
    assert done.exit_code == 0, done.stderr
    assert len(json.loads(done.stdout)["allocations"]) == 1


@pytest.mark.parametrize(
    ("policy", "code", "said"),
    [
        ("name: x\nlimits: {regions: [mars-1]}\n", 3, "not allowed by the policy"),
        ("name: x\nlimits: {regions: []}\n", 2, "limits.regions: expected at least one entry"),
        ("name: x\nlimits: {providers: []}\n", 2, "limits.providers: expected at least one entry"),
    ],
)
def test_a_policy_that_allows_nothing(tmp_path: Path, policy: str, code: int, said: str) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "policy.yaml").write_text(policy)
    refused(plan(tmp_path / "job.yaml", "-p", tmp_path / "policy.yaml"), code, said)


def test_a_missing_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "big.yaml").open("wb") as big:
        big.truncate(200_000_000)
    refused(plan(tmp_path / "pipe"), 2, "the file is empty")
    refused(plan("/dev/zero"), 2, "is larger than 256 KiB")
    refused(plan(tmp_path / "big.yaml"), 2, "is larger than 256 KiB")
    refused(plan(tmp_path), 2, "big.yaml: is larger than 256 KiB")
    (tmp_path / "job.yaml").write_text(JOB)
    refused(plan(tmp_path / "job.yaml", "--market", tmp_path / "pipe"), 1, "is not a regular file")
    refused(plan(tmp_path / "job.yaml", "--market", "/dev/zero"), 1, "is not a regular file")
    refused(plan(tmp_path / "job.yaml", "--market", tmp_path), 2, "is a directory")


Spoil = Callable[[Path], None]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _garbage(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 40)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _column(path: Path, name: str, value: float | None) -> None:
    table = pq.read_table(path)
    index = table.schema.get_field_index(name)
    values = pa.array([value] * len(table), table.schema.field(index).type)
    pq.write_table(table.set_column(index, table.schema.field(index), values), path)


@pytest.mark.parametrize(
    ("spoil", "code", "said"),
    [
        (_cut, 1, "truncated or no parquet file"),
        (_garbage, 1, "truncated or no parquet file"),
        (_empty, 1, "is empty (0 bytes)"),
        (lambda path: pq.write_table(pq.read_table(path).slice(0, 0), path), 1, "holds no row"),
        (lambda path: _column(path, "price_usd_per_hour", math.nan), 1, "row 1, column price"),
        (lambda path: _column(path, "price_usd_per_hour", None), 3, "price_unknown"),
    ],
    ids=["truncated", "garbage", "empty", "no rows", "NaN prices", "unknown prices"],
)
def test_a_spoilt_market(tmp_path: Path, spoil: Spoil, code: int, said: str) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    path = tmp_path / "market.parquet"
    spot = pool_history(SPOT, [(0, 1, 1.0)], 72 * 3600)
    on_demand = pool_history(ON_DEMAND, [(0, 9, 3.0)], 72 * 3600)
    write_history(market(spot, on_demand), path)
    assert plan(tmp_path / "job.yaml", "--market", path).exit_code == 0
    spoil(path)
    refused(plan(tmp_path / "job.yaml", "--market", path), code, said)
