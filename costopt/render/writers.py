"""A table on a terminal, as JSON, CSV, Markdown and HTML."""

from __future__ import annotations

import csv
import html
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from itertools import groupby
from typing import TextIO

from costopt.render.html import cell_html, page_css
from costopt.render.table import Cell, Column, OutputFormat, Row, Table

FOLD_WIDTH = 24
"""Characters that a folded column takes at the least."""
MAX_WIDTH = 1000
"""Columns of text where there is no terminal to fill."""


def write_table(table: Table, output: OutputFormat, stream: TextIO) -> None:
    """Write the table to a stream of text, as wide as its terminal where it is one."""
    if output is OutputFormat.TABLE:
        _write_text(table, stream)
    else:
        stream.write(_WRITERS[output](table))


def to_json(table: Table) -> str:
    """Return an object with ``schema``, the facts and ``rows``."""
    rows = [_value(table.fields(row)) for row in table.rows]
    facts = {key: _value(value) for key, value in table.facts.items()}
    document = {"schema": table.schema, **facts, "rows": rows}
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def to_csv(table: Table) -> str:
    """Return a header of keys and raw values; unknown is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.fields({}))
    for row in table.rows:
        writer.writerow(_csv_value(value) for value in table.fields(row).values())
    return text.getvalue()


def to_markdown(table: Table) -> str:
    """Return a pipe table under its title, with the notes below."""
    columns = table.shown_columns
    lines = [f"### {table.title}", ""]
    lines.append("| " + " | ".join(column.title for column in columns) + " |")
    lines.append("|" + "|".join("---:" if column.right else "---" for column in columns) + "|")
    lines.extend(
        "| " + " | ".join(_escaped(column.text(row)) for column in columns) + " |"
        for row in table.rows
    )
    for note in table.notes:
        lines += ["", note]
    return "\n".join(lines) + "\n"


def to_html(table: Table) -> str:
    """Return one self-contained page in the style of the reports; it needs no extra.

    The table is in a card, the notes are under it; indented ones are shown as they stand.
    """
    title = html.escape(table.title)
    paragraphs = "\n".join(_notes_html(table.notes))
    card = f"<section>\n{paragraphs}\n</section>\n" if table.notes else ""
    return _PAGE.format(title=title, css=page_css(), table=_table_html(table), notes=card)


_WRITERS: Mapping[OutputFormat, Callable[[Table], str]] = {
    OutputFormat.JSON: to_json,
    OutputFormat.CSV: to_csv,
    OutputFormat.MD: to_markdown,
    OutputFormat.HTML: to_html,
}


def _write_text(table: Table, stream: TextIO) -> None:
    """As wide as the terminal; where there is none, as wide as the rows, so that none is cut."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    at_terminal = stream.isatty()
    target = stream if at_terminal else io.StringIO()
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
        stream.writelines(f"{line.rstrip()}\n" for line in target.getvalue().splitlines())


def columns_that_fit(table: Table, width: int) -> tuple[Column, ...]:
    """Return the columns for people that fit into ``width`` characters side by side."""
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


def _value(value: object) -> object:
    """A value as JSON writes it: times in ISO 8601, unknown as null."""
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case Enum():
            return value.value
        case Cell():
            return value.text
        case Mapping():
            return {str(key): _value(inner) for key, inner in value.items()}
        case str() | int() | float() | bool() | None:
            return value
        case Sequence():
            return [_value(inner) for inner in value]
    return str(value)


def _csv_value(value: object) -> object:
    plain = _value(value)
    return json.dumps(plain) if isinstance(plain, dict | list) else plain


def _escaped(cell: str) -> str:
    return cell.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def _table_html(table: Table) -> str:
    head = "".join(
        f'<th scope="col" class="{_kind(column)}">{cell_html(column.title)}</th>'
        for column in table.shown_columns
    )
    body = "\n".join(_row_html(table, row) for row in table.rows)
    return f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"


def _row_html(table: Table, row: Row) -> str:
    cells = "".join(
        f'<td class="{_kind(column)}" data-label="{html.escape(column.title)}">'
        f"{cell_html(column.text(row))}</td>"
        for column in table.shown_columns
    )
    mark = ' class="marked"' if table.is_marked(row) else ""
    return f"<tr{mark}>{cells}</tr>"


def _kind(column: Column) -> str:
    return "number" if column.right else "name"


def _notes_html(notes: Sequence[str]) -> Iterator[str]:
    for is_indented, lines in groupby(notes, key=lambda note: note.startswith("  ")):
        if is_indented:
            shown = html.escape("\n".join(lines))
            yield f"<pre>{shown}</pre>"
        else:
            yield from (f"<p>{cell_html(line)}</p>" for line in lines)


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
{css}</style>
</head>
<body class="wide">
<header><h1>{title}</h1></header>
<main>
<section>
<div class="scroll" tabindex="0" role="region" aria-label="{title}">
<table class="compact cards">
{table}
</table>
</div>
</section>
{notes}</main>
</body>
</html>
"""
