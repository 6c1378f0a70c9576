"""A limit: its value, and what remains of it under a plan."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from costopt.domain.account import Tenant
from costopt.domain.limits import LimitSpec, LimitUnit
from costopt.domain.plan import SLACK_TOLERANCE, Constraint
from costopt.domain.policy import LIMIT_SPECS
from costopt.formatting import UNKNOWN_TEXT, number_text, pools_text, seconds_text, usd_text
from costopt.render.table import Column, Table, pick

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


MIN_PRICE_USD = 0.005
"""A lower shadow price is the solver's tolerance."""


def _holders(limit: Constraint) -> str:
    """Return what each job holds at most at a time, and what it pays for it."""
    return ", ".join(
        f"{use.job} {number_text(use.amount)}"
        + (f" ({usd_text(use.paid_usd)})" if use.paid_usd else "")
        for use in limit.uses
    )


def limit_name(limit: Constraint) -> str:
    """Return its name without the unit."""
    return limit.name.removesuffix(f" ({limit.unit})")


LIMIT_COLUMNS = (
    Column("name", "Limit", pools_text, fold_at=24, value=limit_name),
    Column("used", "Used", number_text, right=True, value=lambda each: each.most - each.slack),
    Column("most", "Of", number_text, right=True),
    Column("left", "Left", right=True, value="slack",
           shown=lambda left: number_text(0.0 if abs(left) < SLACK_TOLERANCE else left)),
    Column("unit", "Unit"),
    Column("shadow_price", "$ of one more", right=True, unknown=UNKNOWN_TEXT,
           shown=lambda usd: "nothing" if usd < MIN_PRICE_USD else usd_text(usd)),
    Column("holders", "Held by (paid)", fold_at=36, for_people=True, value=_holders),
)  # fmt: skip
"""A row is a Constraint of a plan; ``used`` is of those with a maximum."""


def limits_table(title: str, keys: str, constraints: Iterable[Constraint]) -> Table:
    """Return the tightest first: what remains of each, and what one more would save at most."""
    rows = sorted(constraints, key=lambda each: (not each.binds, each.name))
    return Table("", title, pick(LIMIT_COLUMNS, keys), rows)


SETTING_COLUMNS = (
    Column("limit", "Limit"),
    Column("value", "Value", right=True),
    Column("effect", "Effect"),
    Column("policy", "Policy", right=True, unknown=""),
    Column("budget", "Job budget", right=True, unknown=""),
)
"""What an account, or a job's policy and budget set of each limit."""


def tenant_columns() -> tuple[Column, ...]:
    """Return the columns of tenants' limits; a row is a Tenant."""
    return (
        Column("name", "Tenant"),
        Column("weight", "Weight", "{:g}".format, right=True),
        *(
            Column(spec.field, spec.label, partial(limit_text, spec), right=True, unknown=NO_LIMIT)
            for spec in LIMIT_SPECS.values()
            if spec.field in Tenant.__dataclass_fields__
        ),
    )
