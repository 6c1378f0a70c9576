"""What a job's policy holds it to."""

from __future__ import annotations

from costopt.daemon.pages.block import Cell, Grid, columns
from costopt.domain.errors import SpecError
from costopt.domain.policy import Limits
from costopt.domain.submission import Submission
from costopt.report.figure import duration, usd
from costopt.spec import policy_in
from costopt.spec.document import parse_document

NO_LIMIT = "no limit"


def limits_grid(submission: Submission) -> Grid:
    """The policy's guards; where this costopt cannot read the policy any more, that it cannot."""
    lead = "A guard stops launches; one of dollars in all or per month also stops the job."
    try:
        limits = policy_in(parse_document(submission.policy_document, "policy.yaml")).limits
    except SpecError as error:
        return _grid((), "", error.message)
    return _grid(_rows(limits), lead, "")


def dollars(limit: float | None) -> str:
    """A limit in dollars."""
    return NO_LIMIT if limit is None else usd(limit * 1e6)


def count(limit: float | None) -> str:
    """A limit of things."""
    return NO_LIMIT if limit is None else f"{limit:,g}"


def _grid(rows: tuple[tuple[str, str], ...], lead: str, empty: str) -> Grid:
    cells = tuple((Cell(name), Cell(limit)) for name, limit in rows)
    return Grid("limits", "Its policy's guards", columns("guard", "#at most"), cells, lead, empty)


def _rows(limits: Limits) -> tuple[tuple[str, str], ...]:
    age_s = limits.max_price_age_s
    return (
        ("dollars in all", dollars(limits.max_usd)),
        ("dollars per calendar month", dollars(limits.max_usd_per_month)),
        ("dollars per hour", dollars(limits.max_usd_per_hour)),
        ("nodes", count(limits.max_nodes)),
        ("launches per hour", count(limits.max_launches_per_hour)),
        ("age of a price", NO_LIMIT if age_s is None else duration(age_s)),
        ("times the planned price", count(limits.max_price_ratio)),
    )
