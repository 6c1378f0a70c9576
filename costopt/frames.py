"""Results as pandas data frames; the only import of pandas, which is the extra ``frames``.

Columns have the names of the JSON keys. Instants (names that end in ``at``) are UTC timestamps, and
what is unknown is NaT in their columns and NaN in others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from costopt.domain.errors import MissingExtraError, install_hint
from costopt.domain.market import Pool
from costopt.render.table import Row, Table

if TYPE_CHECKING:
    from pandas import DataFrame, Series


def table_frame(table: Table) -> DataFrame:
    """Return the rows of a table with all values that programs get.

    Raise MissingExtraError without pandas.
    """
    return rows_frame(map(table.fields, table.rows), tuple(table.fields({})))


def rows_frame(rows: Iterable[Row], names: Sequence[str]) -> DataFrame:
    """Return a row for each of ``rows``, with the values of these names; missing ones are unknown.

    Raise MissingExtraError without pandas.
    """
    held = list(rows)
    return columns_frame({name: [row.get(name) for row in held] for name in names})


def columns_frame(columns: Mapping[str, Sequence[object]]) -> DataFrame:
    """Return columns of equal length as a frame. Raise MissingExtraError without pandas."""
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "a data frame needs pandas", hint=install_hint("frames"), subject="pandas"
        ) from error
    return pandas.DataFrame({name: _series(name, values) for name, values in columns.items()})


def _series(name: str, values: Sequence[object]) -> Series:
    import pandas

    plain = [_plain(value) for value in values]
    if name == "at" or name.endswith("_at"):
        return pandas.to_datetime(pandas.Series(plain, dtype=object), utc=True)
    if all(value is None for value in plain):
        return pandas.Series(plain, dtype=float)
    series = pandas.Series(plain)
    return series.where(series.notna(), float("nan")) if series.dtype == object else series


def _plain(value: object) -> object:
    """Pools as text, members of enumerations by their value."""
    if isinstance(value, Pool):
        return str(value)
    return value.value if isinstance(value, Enum) else value
