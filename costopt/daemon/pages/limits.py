"""What a job's policy and its own budget hold it to."""

from __future__ import annotations

from costopt.daemon.intake import load_submission
from costopt.daemon.pages.block import Cell, Table, make_columns
from costopt.domain.errors import SpecError
from costopt.domain.job import Budget
from costopt.domain.policy import Limits
from costopt.domain.submission import Submission
from costopt.formatting import seconds_text, usd_text

NO_LIMIT = "no limit"


def limits_grid(submission: Submission) -> Table:
    """Its guards; where this costopt cannot read the job any more, that it cannot."""
    lead = "A guard stops launches; one of dollars in all or per month also stops the job."
    try:
        known = load_submission(submission)
    except SpecError as error:
        return _grid((), "", error.message)
    return _grid(_rows(known.policy.limits, known.job.budget), lead, "")


def dollars(limit: float | None) -> str:
    """A limit in dollars."""
    return NO_LIMIT if limit is None else usd_text(limit)


def count(limit: float | None) -> str:
    """A limit of things."""
    return NO_LIMIT if limit is None else f"{limit:,g}"


def _grid(rows: tuple[tuple[str, str, str], ...], lead: str, empty: str) -> Table:
    cells = tuple(tuple(Cell(text) for text in row) for row in rows)
    heads = make_columns("guard", "#by its policy", "#by its own budget")
    return Table("limits", "Its guards", heads, cells, lead, empty)


def _rows(limits: Limits, own: Budget) -> tuple[tuple[str, str, str], ...]:
    age_s = limits.max_price_age_s
    return (
        ("dollars in all", dollars(limits.max_usd), dollars(own.max_usd)),
        (
            "dollars per calendar month",
            dollars(limits.max_usd_per_month),
            dollars(own.max_usd_per_month),
        ),
        ("dollars per hour", dollars(limits.max_usd_per_hour), dollars(own.max_usd_per_hour)),
        ("kilowatt-hours in all", "", count(own.max_kwh)),
        ("nodes", count(limits.max_nodes), ""),
        ("launches per hour", count(limits.max_launches_per_hour), ""),
        ("age of a price", NO_LIMIT if age_s is None else seconds_text(age_s), ""),
        ("times the planned price", count(limits.max_price_ratio), ""),
    )
