"""A file that a command imports."""

from __future__ import annotations

from pathlib import Path

from costopt.domain.errors import CostoptError


def check_record(record: Path, refuse: type[CostoptError]) -> None:
    """Raises ``refuse`` unless ``record`` is a regular file, since a pipe may never be written."""
    if not record.exists():
        raise refuse(f"{record} does not exist", hint="check the path", code="missing")
    if not record.is_file():
        raise refuse(
            f"{record} is not a regular file",
            hint="save the record as a file first",
            code="not_a_file",
        )
