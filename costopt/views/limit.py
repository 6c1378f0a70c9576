"""A limit: its value, and what remains of it under a plan."""

from __future__ import annotations

from collections.abc import Sequence

from costopt.domain.limits import LimitSpec, LimitUnit
from costopt.domain.plan import SLACK_TOLERANCE, Constraint
from costopt.formatting import UNKNOWN_TEXT, number_text, pools_text, seconds_text, usd_text
from costopt.render.table import Column, Table

NO_LIMIT = "no limit"


def limit_text(spec: LimitSpec, value: object) -> str:
    """Return a limit's value in its unit; None and an empty list mean no limit."""
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


def _slack(each: Constraint) -> str:
    return number_text(0.0 if abs(each.slack) < SLACK_TOLERANCE else each.slack)


_LIMIT_COLUMNS = (
    Column("name", "Limit", pools_text,
           value=lambda each: each.name.removesuffix(f" ({each.unit})")),
    Column("left", "Remaining", right=True,
           value=lambda each: f"{_slack(each)} {each.unit}".rstrip()),
    Column("saving", "$ saved by one more", lambda usd: "nothing" if usd <= 0 else usd_text(usd),
           right=True, value="shadow_price", unknown=UNKNOWN_TEXT),
)  # fmt: skip


def limits_table(constraints: Sequence[Constraint]) -> Table:
    """Return the tightest first: what remains of each, and what more of it would save at most."""
    rows = sorted(constraints, key=lambda each: (_slack(each) != "0", each.name))
    return Table("", "Limits of the plan", _LIMIT_COLUMNS, rows)
