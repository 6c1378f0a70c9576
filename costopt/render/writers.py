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

from costopt.domain.text import displayable_text
from costopt.render.html import cell_html, page_css
from costopt.render.table import Column, OutputFormat, Table
from costopt.render.text_table import is_styled, text_width, to_text


def write_table(table: Table, output: OutputFormat, stream: TextIO, *, wide: bool = False) -> None:
    """Write the table to a stream of text; ``wide`` is about text alone, as in ``to_text``."""
    if output is OutputFormat.TABLE:
        stream.write(to_text(table, text_width(stream, wide), styled=is_styled(stream)))
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
    writer.writerow(table.names)
    for row in table.rows:
        plain = map(_value, table.fields(row).values())
        writer.writerow(json.dumps(v) if isinstance(v, dict | list) else v for v in plain)
    return text.getvalue()


def to_markdown(table: Table) -> str:
    """Return a pipe table under its title and lead, with notes and details below."""
    columns = table.shown_columns
    lines = [f"### {table.title}", "", *((table.lead, "") if table.lead else ())]
    lines.append("| " + " | ".join(column.title for column in columns) + " |")
    lines.append("|" + "|".join("---:" if column.right else "---" for column in columns) + "|")
    lines.extend(
        "| " + " | ".join(_escaped(column.text(row)) for column in columns) + " |"
        for row in table.rows
    )
    for note in (*table.notes, *table.details):
        lines += ["", note]
    return "\n".join(lines) + "\n" + "".join(f"\n{to_markdown(each)}" for each in table.more)


def to_html(table: Table) -> str:
    """Return one self-contained page in the style of the reports; it needs no extra.

    The table is in a card, the notes are under it; indented ones are shown as they stand.
    """
    title = html.escape(table.title)
    lead = f'<p class="lead">{cell_html(table.lead)}</p>' if table.lead else ""
    cards = "".join([_card(table), *(_card(each, f"<h2>{html.escape(each.title)}</h2>\n")
                                     for each in table.more)])  # fmt: skip
    return _PAGE.format(title=title, css=page_css(), lead=lead, cards=cards)


def _card(table: Table, heading: str = "") -> str:
    """The table in a card, its notes in one below."""
    paragraphs = "\n".join(notes_html((*table.notes, *table.details)))
    notes = f"<section>\n{paragraphs}\n</section>\n" if paragraphs else ""
    return (
        _CARD.format(heading=heading, title=html.escape(table.title), table=table_html(table))
        + notes
    )


_WRITERS: Mapping[OutputFormat, Callable[[Table], str]] = {
    OutputFormat.JSON: to_json,
    OutputFormat.CSV: to_csv,
    OutputFormat.MD: to_markdown,
    OutputFormat.HTML: to_html,
}


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


def _escaped(cell: str) -> str:
    cell = displayable_text(cell)
    return cell.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def table_html(table: Table) -> str:
    """Return head and body of the table for people, escaped."""
    head = "".join(
        f'<th scope="col" class="{_kind(column)}">{cell_html(column.title)}</th>'
        for column in table.shown_columns
    )
    rows = []
    for row in table.rows:
        cells = "".join(
            f'<td class="{_kind(column)}" data-label="{html.escape(column.title)}">'
            f"{cell_html(column.text(row))}</td>"
            for column in table.shown_columns
        )
        mark = ' class="marked"' if table.is_marked(row) else ""
        rows.append(f"<tr{mark}>{cells}</tr>")
    body = "\n".join(rows)
    return f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"


def _kind(column: Column) -> str:
    return "number" if column.right else "name"


def notes_html(notes: Sequence[str]) -> Iterator[str]:
    """Yield paragraphs; indented notes that follow each other are shown as they stand."""
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
<header><h1>{title}</h1>{lead}</header>
<main>
{cards}</main>
</body>
</html>
"""
_CARD = """<section>
{heading}<div class="scroll" tabindex="0" role="region" aria-label="{title}">
<table class="compact cards">
{table}
</table>
</div>
</section>
"""
