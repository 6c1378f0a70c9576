"""What a new job would change for a daemon's jobs, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from costopt.domain.estimate import Basis, Estimate
from costopt.formatting import iso_minute_text, number_text, pools_text, probability_text, usd_text
from costopt.render.table import Column, Row, Table

MIN_USD = 0.01
"""Less is the simulation's noise."""

_FIGURES = ("usd", "kwh", "finish_at", "on_time")


def impact_table(answer: Mapping[str, Any]) -> Table:
    """Return a row per job of the daemon's response, with its figures before and after."""
    rows = [_row(each) for each in answer["jobs"]]
    return Table(
        schema="costopt.plan-impact/1",
        title=f"{answer['job']} beside what runs, policy {answer['policy']}",
        columns=_columns(),
        rows=rows,
        facts={name: answer[name] for name in ("job", "policy", "now", "apart")},
        notes=tuple(_notes(answer)),
        marks="is_new",
    )


def _columns() -> tuple[Column, ...]:
    return (
        Column("mark", "", for_people=True),
        Column("job", "Job"),
        Column("tenant", "Tenant", rank=4),
        Column("served", "Served"),
        Column("usd_before", "$ before", usd_text, right=True),
        Column("usd_after", "$ after", usd_text, right=True),
        Column("kwh_before", "kWh before", number_text, right=True, rank=5),
        Column("kwh_after", "kWh after", number_text, right=True, rank=5),
        Column("finish_at_before", "Done before", iso_minute_text, rank=1),
        Column("finish_at_after", "Done after", iso_minute_text, rank=1),
        Column("on_time_before", "P before", probability_text, right=True, interval=True, rank=2),
        Column("on_time_after", "P after", probability_text, right=True, interval=True, rank=2),
        Column("is_new", "New", detail=True),
        Column("why", "Why not", detail=True),
    )


def _row(each: Mapping[str, Any]) -> Row:
    figures: dict[str, object] = {}
    for when in ("before", "after"):
        known = each[when] or {}
        figures |= {f"{name}_{when}": known.get(name) for name in _FIGURES}
        on_time = known.get("on_time")
        figures[f"on_time_{when}"] = on_time and _estimate(on_time)
    return {
        "mark": "new" if each["is_new"] else "",
        **{name: each[name] for name in ("job", "tenant", "served", "is_new")},
        **figures,
        "why": each["why"] or None,
    }


def _estimate(known: Mapping[str, Any]) -> Estimate:
    return Estimate(
        known["value"], known["low"], known["high"], Basis(known["basis"]), known["source"]
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
