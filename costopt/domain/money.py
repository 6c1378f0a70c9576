"""Money in the ledger: integer micro-dollars."""

from typing import overload

MICROS = 1_000_000  # micro-dollars a dollar


@overload
def to_micros(usd: float) -> int: ...
@overload
def to_micros(usd: float | None) -> int | None: ...
def to_micros(usd: float | None) -> int | None:
    """Dollars as micro-dollars, rounded to the nearest; an unknown amount stays unknown."""
    return None if usd is None else round(usd * MICROS)
