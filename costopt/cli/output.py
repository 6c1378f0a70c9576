"""One table, told to people or to programs: table, json, csv, md, html."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any

import click

from costopt.domain.estimate import Estimate
from costopt.formatting import UNKNOWN_CELL, plain_text

if TYPE_CHECKING:
    from costopt.render.table import Table as PageTable

Row = Mapping[str, object]

FOLD_WIDTH = 24
"""Characters that a folded column takes at the least."""
MAX_WIDTH = 1000
"""Columns of text where there is no terminal to fill."""


class OutputFormat(StrEnum):
    """How a table is written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MD = "md"
    HTML = "html"


output_option = click.option(
    "--output",
    "-o",
    type=click.Choice([each.value for each in OutputFormat]),
    default=OutputFormat.TABLE.value,
    envvar="COSTOPT_OUTPUT",
    show_envvar=True,
    help="How to write the answer to stdout.",
)


@dataclass(frozen=True, slots=True)
class Column:
    """``key`` names the value for programs, ``title`` for people; ``shown`` writes it for people.

    ``unknown`` stands in the cell of a value that is None, which ``shown`` never gets.

    ``detail`` columns appear in json and csv only. On a terminal, text longer than ``fold_at``
    goes on in the next line of its cell, and where the columns do not fit side by side those of
    the highest ``rank`` are left out first; rank 0 always stays. The values of an ``interval``
    column are Estimates: programs get them as KEY, KEY_low and KEY_high.
    """

    key: str
    title: str
    shown: Callable[[Any], str] = plain_text
    right: bool = False
    detail: bool = False
    fold_at: int | None = None
    rank: int = 0
    interval: bool = False
    unknown: str = UNKNOWN_CELL

    def text(self, row: Row) -> str:
        """Return what people see of a row."""
        value = row.get(self.key)
        return self.unknown if value is None else self.shown(value)

    def fields(self, row: Row) -> Row:
        """What programs get of a row, by name."""
        value = row.get(self.key)
        return with_ends(self.key, value) if self.interval else {self.key: value}


@dataclass(frozen=True, slots=True)
class Table:
    """``schema`` is the name and version of the form, such as costopt.catalog/1.

    ``rows`` hold raw values by column key. ``facts`` are values of the whole table, json only;
    ``notes`` are sentences under the table for people. Rows whose value of ``marks`` is true stand
    out on a page.
    """

    schema: str
    title: str
    columns: tuple[Column, ...]
    rows: Sequence[Row]
    facts: Row = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    marks: str | None = None

    @property
    def shown_columns(self) -> tuple[Column, ...]:
        """The columns for people."""
        return tuple(column for column in self.columns if not column.detail)


def print_table(table: Table, output: str) -> None:
    """Write the table to stdout."""
    if output == OutputFormat.TABLE:
        _print_rich(table)
    else:
        click.echo(_RENDERERS[OutputFormat(output)](table), nl=False)


def as_json(table: Table) -> str:
    """An object with ``schema``, the facts and ``rows``."""
    rows = [_value(_fields(table, row)) for row in table.rows]
    facts = {key: _value(value) for key, value in table.facts.items()}
    document = {"schema": table.schema, **facts, "rows": rows}
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def as_csv(table: Table) -> str:
    """A header of keys and raw values; unknown is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_fields(table, {}))
    for row in table.rows:
        writer.writerow(_cell(value) for value in _fields(table, row).values())
    return text.getvalue()


def as_markdown(table: Table) -> str:
    """A pipe table under its title, with the notes below."""
    columns = table.shown_columns
    lines = [f"### {table.title}", ""]
    lines.append("| " + " | ".join(column.title for column in columns) + " |")
    lines.append("|" + "|".join("---:" if column.right else "---" for column in columns) + "|")
    for row in table.rows:
        cells = (column.text(row) for column in columns)
        lines.append("| " + " | ".join(_escaped(cell) for cell in cells) + " |")
    for note in table.notes:
        lines += ["", note]
    return "\n".join(lines) + "\n"


def as_html(table: Table) -> str:
    """One self-contained page."""
    from costopt.render.writers import html_page

    return html_page(as_page_table(table), table.notes)


def as_page_table(table: Table) -> PageTable:
    """What people see of the table, for a page."""
    from costopt.render.table import Table as PageTable

    columns = table.shown_columns
    return PageTable(
        table.title,
        tuple(column.title for column in columns),
        tuple(tuple(column.text(row) for column in columns) for row in table.rows),
        frozenset(index for index, column in enumerate(columns) if column.right),
        frozenset(
            index for index, row in enumerate(table.rows) if table.marks and row[table.marks]
        ),
    )


_RENDERERS: Mapping[OutputFormat, Callable[[Table], str]] = {
    OutputFormat.JSON: as_json,
    OutputFormat.CSV: as_csv,
    OutputFormat.MD: as_markdown,
    OutputFormat.HTML: as_html,
}


def _print_rich(table: Table) -> None:
    """As wide as the terminal; where there is none, as wide as the rows, so that none is cut."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    at_terminal = sys.stdout.isatty()
    target = sys.stdout if at_terminal else io.StringIO()
    console = Console(
        file=target,
        width=None if at_terminal else MAX_WIDTH,
        no_color=None if at_terminal else True,
        highlight=False,
    )
    columns = columns_that_fit(table, console.width)
    console.print(Text(table.title, style="italic"))
    grid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        grid.add_column(
            column.title,
            justify="right" if column.right else "left",
            overflow="fold",
            max_width=column.fold_at,
        )
    for row in table.rows:
        grid.add_row(*(Text(column.text(row)) for column in columns))
    console.print(grid)
    left_out = [column.title for column in table.shown_columns if column not in columns]
    if left_out:
        console.print(Text(f"No room here for: {', '.join(left_out)}."), style="dim")
    for note in table.notes:
        console.print(Text(note))
    if isinstance(target, io.StringIO):
        for line in target.getvalue().splitlines():
            click.echo(line.rstrip())


def columns_that_fit(table: Table, width: int) -> tuple[Column, ...]:
    """The columns for people that fit into ``width`` characters side by side."""
    widths = {
        column: max([len(column.title), *(len(column.text(row)) for row in table.rows)])
        for column in table.shown_columns
    }
    columns = list(table.shown_columns)
    while sum(_needed(column, widths[column]) for column in columns) > width:
        first_out = max(reversed(columns), key=lambda column: column.rank)
        if first_out.rank == 0:
            break
        columns.remove(first_out)
    return tuple(columns)


def _needed(column: Column, width: int) -> int:
    """Characters with the space around; folded text can do with some."""
    return (width if column.fold_at is None else min(width, FOLD_WIDTH)) + 3


def with_ends(name: str, estimate: object) -> Row:
    """An estimate's value and the ends of its interval, by name; of None three times None."""
    known = estimate if isinstance(estimate, Estimate) else None
    ends = (known.value, known.low, known.high) if known else (None, None, None)
    return dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))


def _fields(table: Table, row: Row) -> Row:
    return {name: v for column in table.columns for name, v in column.fields(row).items()}


def _value(value: object) -> object:
    """A value as JSON writes it: times in ISO 8601, unknown as null."""
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case Enum():
            return value.value
        case Mapping():
            return {str(key): _value(inner) for key, inner in value.items()}
        case str() | int() | float() | bool() | None:
            return value
        case Sequence():
            return [_value(inner) for inner in value]
    return str(value)


def _cell(value: object) -> object:
    told = _value(value)
    return json.dumps(told) if isinstance(told, dict | list) else told


def _escaped(cell: str) -> str:
    return cell.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
