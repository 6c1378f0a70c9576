"""A table on a terminal, as JSON, CSV, Markdown and HTML."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import TextIO

from costopt.domain.text import displayable_text
from costopt.render.html import render_page
from costopt.render.page import Plot
from costopt.render.table import OutputFormat, Table
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


def to_html(table: Table, plots: Sequence[Plot] = ()) -> str:
    """Return one self-contained page in the style of the reports, with drawings above the table.

    The notes are under it; indented ones are shown as they stand.
    """
    return render_page(
        "table.html.j2", title=table.title, made_at=datetime.now(UTC), table=table, plots=plots
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
