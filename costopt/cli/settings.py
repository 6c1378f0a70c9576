"""What holds for the whole command line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CliContext:
    """Filled by the options that stand before the command's name."""

    debug: bool = False
