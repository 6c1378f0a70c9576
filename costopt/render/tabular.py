"""Results that are shown as tables where Python shows a value."""

from __future__ import annotations

from pathlib import Path

from costopt.render.table import Table


class Tabular:
    """What is shown as a table: by Python's prompt as text, by a notebook as HTML."""

    __slots__ = ()

    def table(self) -> Table:
        """Return the table."""
        raise NotImplementedError

    def to_html(self) -> str:
        """Return one self-contained HTML document."""
        from costopt.render.writers import to_html

        return to_html(self.table())

    def write_report(self, path: Path | str) -> Path:
        """Write the HTML document to a file; return its path.

        Raise StoreError if the file cannot be written.
        """
        from costopt.render.html import write_page

        return write_page(Path(path), self.to_html())

    def __repr__(self) -> str:
        from costopt.render.text_table import to_text

        return to_text(self.table(), more_by="to_frame()").rstrip()

    def _repr_html_(self) -> str:
        from costopt.render.notebook import table_fragment

        return table_fragment(self.table(), getattr(self, "notes", ()))
