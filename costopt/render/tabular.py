"""Results that are shown as tables where Python shows a value."""

from __future__ import annotations

from costopt.render.table import Table


class Tabular:
    """What is shown as a table: by Python's prompt as text, by a notebook as HTML."""

    __slots__ = ()

    def table(self) -> Table:
        """Return the table."""
        raise NotImplementedError

    def __repr__(self) -> str:
        from costopt.render.text_table import to_text

        return to_text(self.table(), more_by="to_frame()").rstrip()

    def _repr_html_(self) -> str:
        from costopt.render.notebook import table_fragment

        return table_fragment(self.table(), getattr(self, "notes", ()))
