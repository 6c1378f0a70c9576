"""A noun is laid out in one file of costopt/views, and every surface shows that."""

from __future__ import annotations

import ast
import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from costopt.daemon.pages import jobs as job_pages
from costopt.daemon.pages.layout import ChartCache, PageRequest
from costopt.daemon.reader import TenantReader
from costopt.render.page import TableBlock
from costopt.render.table import Column, OutputFormat, Table
from costopt.render.text_table import to_text
from costopt.render.writers import to_csv, to_html, to_json, to_markdown
from costopt.views import job as job_view
from tests.support.daemon_pages import FINISHED, RUNNING, shown

ROOT = Path(__file__).parents[3]
PEOPLE = "people see this"


def test_only_views_and_commands_have_columns() -> None:
    """A command or an export may have a table that nothing else shows."""
    own = {
        path.relative_to(ROOT)
        for path in (ROOT / "costopt").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id == "Column"
    }
    own.discard(Path("costopt/optimize/colgen/generation.py"))
    folders = {"/".join(path.parts[1:-1]) for path in own}
    assert folders == {"cli", "render/exports", "views"}


def test_a_column_is_changed_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (usd,) = (column for column in job_view.JOB_COLUMNS if column.key == "usd")
    changed = replace(usd, title="Cost", shown=lambda _: PEOPLE)
    columns = [changed if column is usd else column for column in job_view.JOB_COLUMNS]
    modules: list[ModuleType] = [job_view, job_pages]
    for module in modules:
        monkeypatch.setattr(module, "JOB_COLUMNS", tuple(columns))
    with shown(tmp_path) as daemon:
        reader = TenantReader(daemon.service)
        statuses = reader.jobs()
        rows = [{"summary": status.summary} for status in statuses]
        page = job_pages.jobs_page(reader, PageRequest(), ChartCache(daemon.service))
    table = job_view.jobs_table(rows)
    for text in (to_text(table), to_markdown(table), to_html(table)):
        assert text.count(PEOPLE) == len(statuses)
        assert "Cost" in text
    programs = job_view.jobs_table(rows, OutputFormat.JSON)
    spent = {status.summary.job: status.summary.usd for status in statuses}
    assert {row["job"]: row["usd"] for row in json.loads(to_json(programs))["rows"]} == spent
    found = csv.DictReader(io.StringIO(to_csv(programs)))
    assert {row["job"]: float(row["usd"]) for row in found} == spent
    tables = {block.id: block.table for block in page.blocks if isinstance(block, TableBlock)}
    for name, job in (("open", RUNNING), ("ended", FINISHED)):
        assert texts_of(tables[name], changed)[job] == PEOPLE


def texts_of(table: Table, column: Column) -> dict[str, str]:
    """The column's text by the first cell of each row."""
    assert column in table.columns
    return {table.columns[0].text(row): column.text(row) for row in table.rows}


def test_a_value_is_found_in_objects_and_in_what_the_api_answers() -> None:
    column = Column("usd", "Spent", value="summary.usd")
    answered = {"summary": {"usd": 1.5}}
    assert column.text(answered) == "1.5"
    assert (column.text({}), column.text({"summary": None})) == ("–", "–")
    with pytest.raises(AttributeError):
        column.text({"summary": object()})
