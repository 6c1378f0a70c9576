"""What a new job would change for a daemon's jobs, as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from costopt.domain.estimate import Basis, Estimate
from costopt.formatting import minute_text, number_text, pools_text, probability_text, usd_text
from costopt.render.table import Column, Row, Table, value_at

MIN_USD = 0.01
"""Less is the simulation's noise."""


def _on_time(when: str) -> Callable[[Row], Estimate | None]:
    def estimate(row: Row) -> Estimate | None:
        known = value_at(row, f"{when}.on_time")
        return known and Estimate(**{**known, "basis": Basis(known["basis"])})

    return estimate


IMPACT_COLUMNS = (
    Column("mark", "", lambda is_new: "new" if is_new else "", for_people=True, value="is_new"),
    Column("job", "Job"),
    Column("tenant", "Tenant", rank=4),
    Column("served", "Served"),
    *(
        Column(f"{key}_{when}", f"{title} {when}", shown, right=shown is not minute_text, rank=rank,
               value=f"{when}.{key}")
        for key, title, shown, rank in (
            ("usd", "$", usd_text, 0), ("kwh", "kWh", number_text, 5),
            ("finish_at", "Done", minute_text, 1),
        )
        for when in ("before", "after")
    ),
    *(
        Column(f"on_time_{when}", f"P {when}", probability_text, right=True, interval=True, rank=2,
               value=_on_time(when))
        for when in ("before", "after")
    ),
    Column("is_new", "New", detail=True),
    Column("why", "Why not", detail=True, value=lambda row: row["why"] or None),
)  # fmt: skip


def impact_table(answer: Mapping[str, Any]) -> Table:
    """Return a row per job of the daemon's response, with its figures before and after."""
    return Table(
        schema="costopt.plan-impact/1",
        title=f"{answer['job']} beside what runs, policy {answer['policy']}",
        columns=IMPACT_COLUMNS,
        rows=answer["jobs"],
        facts={name: answer[name] for name in ("job", "policy", "now", "apart")},
        notes=tuple(_notes(answer)),
        marks="is_new",
    )


def _notes(answer: Mapping[str, Any]) -> Iterator[str]:
    yield "Figures are from now on; nothing was submitted. P: the probability of being in time."
    pairs = [(each["before"], each["after"]) for each in answer["jobs"] if not each["is_new"]]
    known = [(before["usd"], after["usd"]) for before, after in pairs if before and after]
    if known:
        more = sum(after - before for before, after in known)
        change = usd_text(abs(more)) if abs(more) >= MIN_USD else "nothing"
        verb = "save" if more <= -MIN_USD else "cost"
        yield f"It would {verb} the jobs that run and are served both times {change}."
    if answer["apart"]:
        yield (
            f"{answer['apart']} nodes of jobs under other policies or tenants keep what they hold."
        )
    for each in answer["jobs"]:
        if not each["served"]:
            yield f"Not served: {each['job']}: {pools_text(each['why'])}."
            if each["remedies"]:
                yield f"  would serve it: {'; or '.join(each['remedies'])}"
