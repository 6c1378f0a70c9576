"""A table of text cells, and its forms: terminal, Markdown, CSV."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    """Column names and rows of as many cells; ``numeric`` are the columns aligned to the right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()

    def to_text(self, width: int = 120) -> str:
        """Aligned columns without colour, at most ``width`` characters wide."""
        from rich import box
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text

        drawn = RichTable(title=Text(self.title), box=box.SIMPLE_HEAD, title_justify="left")
        for index, column in enumerate(self.columns):
            drawn.add_column(Text(column), justify="right" if index in self.numeric else "left")
        for row in self.rows:
            drawn.add_row(*(Text(cell) for cell in row))
        buffer = io.StringIO()
        Console(file=buffer, width=width, no_color=True, force_terminal=False).print(drawn)
        return buffer.getvalue()

    def to_markdown(self) -> str:
        """A GitHub-flavoured table under its title."""
        rules = tuple("---:" if i in self.numeric else "---" for i in range(len(self.columns)))
        lines = [_markdown_row(self.columns), f"| {' | '.join(rules)} |"]
        lines += [_markdown_row(row) for row in self.rows]
        return f"### {_markdown(self.title)}\n\n" + "\n".join(lines) + "\n"

    def to_csv(self) -> str:
        """Comma-separated values with a header line (RFC 4180)."""
        buffer = io.StringIO()
        writer = csv.writer(buffer)
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return buffer.getvalue()


def _markdown_row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(_markdown(cell) for cell in cells)} |"


def _markdown(text: str) -> str:
    flat = " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")
    return flat.replace("<", "&lt;").replace("`", "\\`")
