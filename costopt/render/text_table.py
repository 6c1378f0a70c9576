"""A table as text, at most 100 columns wide unless all of its columns are asked for."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TextIO

from costopt.render.table import Column, Table

MAX_WIDTH = 100
"""Characters of a line, unless ``--wide`` asks for all columns."""
UNLIMITED_WIDTH = 10_000
MIN_FOLD_WIDTH = 28
"""A sentence that gets less room beside the other columns goes below its row."""
KEY_RANK = 2
"""Columns up to this rank are worth more than a sentence beside its row."""
GAP = "  "
INDENT = "    "
_UNPRINTED = dict.fromkeys(
    (*range(10), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)),
    " ",
)
"""Control characters but the line feed, and those that reorder the text around them."""
_BOLD, _DIM, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"


def text_width(stream: TextIO, wide: bool = False) -> int:
    """Return how many characters a line may have: MAX_WIDTH, fewer on a narrower terminal, or where
    COLUMNS says so."""
    if wide:
        return UNLIMITED_WIDTH
    if not stream.isatty() and "COLUMNS" not in os.environ:
        return MAX_WIDTH
    return min(MAX_WIDTH, shutil.get_terminal_size((MAX_WIDTH, 24)).columns)


def is_styled(stream: TextIO) -> bool:
    """Return whether the stream is a terminal that shows bold text."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column's cells as text; ``width`` is what it takes, ``least`` what it can do with."""

    column: Column
    cells: tuple[str, ...]
    width: int
    least: int

    @classmethod
    def of(cls, column: Column, rows: Sequence[Any]) -> TextColumn:
        """Measure the column. Of a sentence, the longest word is never broken."""
        cells = tuple(column.text(row).translate(_UNPRINTED) for row in rows)
        width = max(
            map(len, (column.title, *(line for text in cells for line in text.split("\n"))))
        )
        if column.fold_at is None:
            return cls(column, cells, width, width)
        word = max(map(len, (column.title, *(word for text in cells for word in text.split()))))
        width = max(min(width, column.fold_at), word)
        return cls(column, cells, width, max(min(width, MIN_FOLD_WIDTH), word))


def to_text(
    table: Table, width: int = MAX_WIDTH, *, styled: bool = False, more_by: str = "--wide"
) -> str:
    """Return the lead, the title, the columns that fit into ``width``, the notes, and the tables
    after it; in UNLIMITED_WIDTH the details, too.

    Sentences wrap; nothing else is broken, so that a name may make a line longer. Columns without
    any text are left out. ``more_by`` names how a reader gets the columns that do not fit.
    """
    columns = [TextColumn.of(column, table.rows) for column in table.filled_columns]
    beside, below = columns_that_fit(columns, width)
    grid = _grid(table, beside, below, width, styled)
    left_out = [c.column.title for c in columns if c not in beside and c not in below]
    names = ", ".join(title for title in left_out if title)
    is_wide = width >= UNLIMITED_WIDTH
    if table.details and not is_wide:
        names += f"{', ' if names else ''}how the figures came about"
    notes = wrapped(f"{more_by} adds: {names}.", width) if names else []
    if styled:
        notes = [f"{_DIM}{line}{_PLAIN}" for line in notes]
    said = (*table.notes, *(table.details if is_wide else ()))
    notes += [line for note in said for line in wrapped(note, width)]
    lead = [f"{_BOLD}{line}{_PLAIN}" if styled else line for line in wrapped(table.lead, width)]
    lines = [
        *([*lead, ""] if table.lead else []),
        *wrapped(table.title, width),
        "",
        *grid,
        *([""] if notes else []),
        *notes,
    ]
    text = "".join(f"{line.rstrip()}\n" for line in lines)
    return text + "".join(
        f"\n{to_text(each, width, styled=styled, more_by=more_by)}" for each in table.more
    )


def wrapped(text: str, width: int = MAX_WIDTH) -> list[str]:
    """Return the lines of a text, broken between words; an indented one stays indented."""
    lines = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        lines += textwrap.wrap(
            line.translate(_UNPRINTED),
            width,
            subsequent_indent=f"{indent}  " if indent else "",
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    return lines


Columns = Sequence[TextColumn]


def columns_that_fit(columns: Columns, width: int) -> tuple[Columns, Columns]:
    """Return the columns side by side in ``width`` characters, and those below their row.

    Sentences go below where leaving out others does not make enough room, or would leave out one
    of KEY_RANK.
    """
    kept = _kept(columns, width)
    below = [each for each in columns if each.column.fold_at]
    beside = _kept([each for each in columns if each not in below], width)
    hidden = [each for each in beside if each not in kept and each.column.rank <= KEY_RANK]
    return (kept, ()) if _needed(kept) <= width and not hidden else (beside, below)


def _kept(columns: Columns, width: int) -> Columns:
    """The columns of rank 0, and of the others as many as there is room for, the lowest first."""
    kept = [each for each in columns if each.column.rank == 0]
    for each in sorted(columns, key=lambda each: each.column.rank):
        if each not in kept and _needed([*kept, each]) <= width:
            kept.append(each)
    return [each for each in columns if each in kept]


def _needed(columns: Columns) -> int:
    return sum(each.least for each in columns) + len(GAP) * (len(columns) - 1)


def _grid(table: Table, beside: Columns, below: Columns, width: int, styled: bool) -> Iterator[str]:
    widths = _widths(beside, width)
    head = _line(beside, widths, [each.column.title for each in beside])
    yield f"{_BOLD}{head}{_PLAIN}" if styled else head
    yield "─" * (sum(widths) + len(GAP) * (len(beside) - 1))
    for index, row in enumerate(table.rows):
        cells = [
            wrapped(each.cells[index], w) if each.column.fold_at else each.cells[index].split("\n")
            for each, w in zip(beside, widths, strict=True)
        ]
        for texts in zip_longest(*cells, fillvalue=""):
            line = _line(beside, widths, texts)
            yield f"{_BOLD}{line}{_PLAIN}" if styled and table.is_marked(row) else line
        for each in below:
            if each.cells[index] not in ("", each.column.unknown):
                yield from wrapped(f"{INDENT}{each.cells[index]}", width)


def _widths(columns: Columns, width: int) -> list[int]:
    """Each column's width; those of sentences share what remains, the least demanding first."""
    room = width - _needed([each for each in columns if not each.column.fold_at])
    folded = sorted((c for c in columns if c.column.fold_at), key=lambda each: each.width)
    room -= len(GAP) * len(folded)
    chosen: dict[str, int] = {}
    for index, each in enumerate(folded):
        share = max(room // (len(folded) - index), each.least)
        chosen[each.column.key] = min(each.width, share)
        room -= chosen[each.column.key]
    return [chosen.get(each.column.key, each.width) for each in columns]


def _line(columns: Columns, widths: Sequence[int], texts: Sequence[str]) -> str:
    return GAP.join(
        text.rjust(width) if each.column.right else text.ljust(width)
        for each, width, text in zip(columns, widths, texts, strict=True)
    )
