"""A new column of an existing figure is one row, and every output and page shows it."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from costopt.cli.main import cli
from costopt.formatting import usd_text
from costopt.render.reports.backtest import backtest_page
from costopt.render.table import Column, OutputFormat, Table
from costopt.render.writers import to_csv, to_html, to_json
from costopt.views import backtest as backtest_table
from costopt.views import plan as plan_table
from tests.unit.render.test_tables import ROW

JOB = """\
name: char-gpt
work: {amount: 4e5, unit: steps}
deadline: 72h
resources: {gpu_models: [T4], max_nodes: 2}
throughput: {flops_per_unit: 1e13, mfu: 0.4}
checkpoint: {uri: checkpoints, save: 10s}
"""
COMMANDS = {
    "plan": ("--top", "2"),
    "what-if": ("--policies", "cheapest", "--points", "0"),
}
ERROR = Column("usd_error", "Standard error", usd_text, right=True)
"""A figure of every forecast that is not a column."""


def responses(folder: Path, command: str) -> dict[str, str]:
    path = folder / "job.yaml"
    path.write_text(JOB, encoding="utf-8")
    out = {}
    for output in OutputFormat:
        given = [command, str(path), *COMMANDS[command], "--output", output.value]
        if output is OutputFormat.TABLE:
            given.append("--wide")
        done = CliRunner().invoke(cli, given)
        assert done.exit_code == 0, done.stderr
        out[output.value] = done.stdout
    return out


@pytest.mark.slow
@pytest.mark.parametrize("command", list(COMMANDS))
def test_a_plan_column_is_one_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    assert ERROR.key not in [column.key for column in plan_table.FORECAST_COLUMNS]
    monkeypatch.setattr(plan_table, "FORECAST_COLUMNS", (*plan_table.FORECAST_COLUMNS, ERROR))
    reported = responses(tmp_path, command)
    for row in json.loads(reported["json"])["rows"]:
        assert row[ERROR.key] > 0
    for record in csv.DictReader(io.StringIO(reported["csv"])):
        assert float(record[ERROR.key]) > 0
    assert [each for each in ("table", "md", "html") if ERROR.title not in reported[each]] == []
    if command == "plan":
        assert json.loads(reported["json"])["forecast"][ERROR.key] > 0
        reasons = {row["code"]: row["reason"] for row in json.loads(reported["json"])["rows"]}
        assert reasons[None] == ""
    else:
        assert "1 of 1 scenarios end in time. Policy cheapest" in reported["html"]


def test_a_backtest_column_is_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    low = Column("low_usd", "$ low", usd_text, right=True)
    columns = (*backtest_table.BACKTEST_COLUMNS, low)
    monkeypatch.setattr(backtest_table, "BACKTEST_COLUMNS", columns)
    standings = [ROW, replace(ROW, policy="greedy", low_usd=None)]
    table: Table = backtest_table.backtest_table(standings)
    rows: list[dict[str, Any]] = json.loads(to_json(table))["rows"]
    assert [row["low_usd"] for row in rows] == [280.0, None]
    assert [row["low_usd"] for row in csv.DictReader(io.StringIO(to_csv(table)))] == ["280.0", ""]
    page = backtest_page(standings, {})
    for text in (to_html(table), page):
        assert 'data-label="$ low">$280.00</td>' in text
        assert 'data-label="$ low">–</td>' in text
