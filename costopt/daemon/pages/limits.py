"""What a job's policy and its own budget hold it to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from costopt.daemon.intake import load_submission
from costopt.domain.errors import SpecError
from costopt.domain.job import Budget
from costopt.domain.limits import LimitSpec, LimitUnit
from costopt.domain.policy import LIMIT_SPECS, Limits
from costopt.domain.submission import Submission
from costopt.formatting import seconds_text, usd_text
from costopt.render.page import TableBlock, make_columns, table_block
from costopt.render.table import Cell

NO_LIMIT = "no limit"


def limits_grid(submission: Submission) -> TableBlock:
    """Its guards; where this costopt cannot read the job any more, that it cannot."""
    lead = "A guard stops launches; one of dollars in all or per month also stops the job."
    try:
        known = load_submission(submission)
    except SpecError as error:
        return _grid((), "", error.message)
    return _grid(_rows(known.policy.limits, known.job.budget), lead, "")


def limit_text(spec: LimitSpec, value: object) -> str:
    """Return a limit's value in its unit; None and an empty list are no limit."""
    if value is None or value == ():
        return NO_LIMIT
    if isinstance(value, tuple):
        return ", ".join(str(each) for each in value)
    if isinstance(value, bool):
        return "allowed" if value else "not allowed"
    assert isinstance(value, (int, float))
    match spec.unit:
        case LimitUnit.USD:
            return usd_text(value)
        case LimitUnit.SECONDS:
            return seconds_text(value)
        case LimitUnit.SHARE:
            return f"{value:.0%}"
    return f"{value:,g}"


def _grid(rows: Iterable[tuple[str, str, str]], lead: str, empty: str) -> TableBlock:
    cells = tuple(tuple(Cell(text) for text in row) for row in rows)
    heads = make_columns("guard", "#by its policy", "#by its own budget")
    return table_block("limits", "Its guards", heads, cells, lead, empty)


def _rows(limits: Limits, own: Budget) -> Iterator[tuple[str, str, str]]:
    for spec in LIMIT_SPECS.values():
        text = limit_text(spec, getattr(limits, spec.field))
        budget = limit_text(spec, getattr(own, spec.field)) if hasattr(own, spec.field) else ""
        yield spec.label, text, budget
    kwh = NO_LIMIT if own.max_kwh is None else f"{own.max_kwh:,g}"
    yield "kilowatt-hours in all", "", kwh
