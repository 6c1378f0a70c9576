"""Results as pandas data frames; the only import of pandas, which is the extra ``frames``.

Columns have the names of the JSON keys. Instants (names that end in ``at``) are UTC timestamps, and
what is unknown is NaT in their columns and NaN in others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from costopt.domain.errors import MissingExtraError, install_hint
from costopt.domain.events import DecisionMade
from costopt.domain.market import Pool
from costopt.domain.ports import RecordedEvent
from costopt.ledger.node_account import NodeInterval
from costopt.ledger.summary import JobSummary, ProgressPoint, SpendPoint
from costopt.render.table import Row, Table, value_at

if TYPE_CHECKING:
    from pandas import DataFrame, Series

    from costopt.backtesting.ranking import PolicySummary
    from costopt.backtesting.trial import Score, Trial

PlanFrame = Literal["candidates", "allocations", "rejections", "constraints"]
AccountPlanFrame = Literal["jobs", "limits", "uses", "allocations"]
PLAN_FRAMES: tuple[PlanFrame, ...] = get_args(PlanFrame)
ACCOUNT_PLAN_FRAMES: tuple[AccountPlanFrame, ...] = get_args(AccountPlanFrame)
WINDOW_COLUMNS = ("market", "start_at", "deadline_at", "startup_s", "policy")


def table_frame(table: Table) -> DataFrame:
    """Return the rows of a table with all values that programs get.

    Raise MissingExtraError without pandas.
    """
    return rows_frame(map(table.fields, table.rows), table.names)


def rows_frame(rows: Iterable[Any], names: Sequence[str]) -> DataFrame:
    """Return a row for each of ``rows``, with the values of these names; missing ones are unknown.

    Raise MissingExtraError without pandas.
    """
    held = list(rows)
    return columns_frame({name: [value_at(row, name) for row in held] for name in names})


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


def plan_frame(table: Table, what: PlanFrame) -> DataFrame:
    """Return the candidates of a plan's table, or what its facts list, with the JSON keys."""
    from costopt.views.plan import PLAN_FACTS

    return _facts_frame(table, what, PLAN_FACTS)


def account_plan_frame(table: Table, what: AccountPlanFrame) -> DataFrame:
    """Return the jobs of an account's plan, or what its facts list, with the JSON keys."""
    from costopt.views.account import ACCOUNT_FACTS

    return _facts_frame(table, what, ACCOUNT_FACTS)


def _facts_frame(table: Table, what: str, names: Mapping[str, str]) -> DataFrame:
    if what not in names:
        return table_frame(table)
    return rows_frame(cast("Iterable[Row]", table.facts[what]), names[what].split())


def standings_frame(standings: Sequence[PolicySummary]) -> DataFrame:
    """Return a row per group and policy, with the fields of PolicySummary."""
    from costopt.backtesting.ranking import PolicySummary

    return rows_frame(standings, [each.name for each in fields(PolicySummary)])


def scores_frame(scores: Iterable[tuple[Trial, Score]]) -> DataFrame:
    """Return a row per window and policy, with the fields of Score."""
    from costopt.backtesting.trial import Score

    found = [field.name for field in fields(Score)]
    rows = (
        {
            "market": trial.window.market,
            "start_at": trial.window.job.start_at,
            "deadline_at": trial.window.job.deadline_at,
            "startup_s": trial.window.job.startup_s,
            "policy": trial.label,
            **{name: getattr(score, name) for name in found},
        }
        for trial, score in scores
    )
    return rows_frame(rows, (*WINDOW_COLUMNS, *found))


def summaries_frame(summaries: Sequence[JobSummary]) -> DataFrame:
    """Return a row per job: the keys of costopt.status/1, and what follows from them."""
    derived = ("usd", "kwh", "done_share", "saved_usd_share", "saved_wh_share")
    return rows_frame(summaries, (*(field.name for field in fields(JobSummary)), *derived))


def events_frame(recorded: Iterable[RecordedEvent]) -> DataFrame:
    """Return a row per event, with the keys of costopt.events/1."""
    from costopt.views.event import events_table

    return table_frame(events_table(recorded))


def nodes_frame(nodes: Iterable[NodeInterval]) -> DataFrame:
    """Return a row per node: where and how long it ran, its dollars, energy and emissions."""
    from costopt.views.node import INTERVAL_COLUMNS

    return table_frame(Table("", "Nodes", INTERVAL_COLUMNS, tuple(nodes)))


def decisions_frame(decisions: Iterable[DecisionMade]) -> DataFrame:
    """Return a row per decision; ``targets`` and ``alternatives`` hold tuples."""
    names = ("at", "decision_id", "targets", "reason", "rule", "slack_s", "alternatives")
    return rows_frame(decisions, names)


def spend_frame(points: Iterable[SpendPoint]) -> DataFrame:
    """Return dollars and energy until each instant at which their slope changes."""
    rows = (
        {"at": p.at, "usd": p.usd_micros / 1e6, "kwh": None if p.wh is None else p.wh / 1000}
        for p in points
    )
    return rows_frame(rows, ("at", "usd", "kwh"))


def progress_frame(points: Iterable[ProgressPoint]) -> DataFrame:
    """Return the work done and saved at each instant at which it was reported."""
    return rows_frame(points, ("at", "done_units", "saved_units"))
