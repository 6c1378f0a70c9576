"""A table as one self-contained page, in the style of the reports; needs no extra."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from itertools import groupby

from costopt.render.html import cell_html, page_css
from costopt.render.table import Table


def html_page(table: Table, notes: Sequence[str]) -> str:
    """The table in a card, and the notes under it; indented ones are shown as they stand."""
    title = html.escape(table.title)
    paragraphs = "\n".join(_notes_html(notes))
    card = f"<section>\n{paragraphs}\n</section>\n" if notes else ""
    return _PAGE.format(title=title, css=page_css(), table=_table_html(table), notes=card)


def _table_html(table: Table) -> str:
    head = "".join(
        f'<th scope="col" class="{_kind(table, index)}">{cell_html(column)}</th>'
        for index, column in enumerate(table.columns)
    )
    body = "\n".join(_row_html(table, index) for index in range(len(table.rows)))
    return f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"


def _row_html(table: Table, index: int) -> str:
    cells = "".join(
        f'<td class="{_kind(table, column)}" data-label="{html.escape(table.columns[column])}">'
        f"{cell_html(cell)}</td>"
        for column, cell in enumerate(table.rows[index])
    )
    mark = ' class="marked"' if index in table.marked else ""
    return f"<tr{mark}>{cells}</tr>"


def _kind(table: Table, column: int) -> str:
    return "number" if column in table.numeric else "name"


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
