"""The plans of a frontier side by side, in one table for every output and page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from costopt.domain.estimate import Estimate
from costopt.domain.job import Job
from costopt.domain.plan import Allocation, Plan
from costopt.formatting import (
    gco2e_text,
    minute_text,
    number_text,
    pool_lines,
    probability_text,
    seconds_text,
    usd_text,
)
from costopt.planning.what_if import POLICY_TERMS, Scenario
from costopt.render.table import Column, Table

if TYPE_CHECKING:
    from costopt.optimize.frontier import FrontierPoint

ALIKE = 0.01
"""Figures of one plan that are simulated twice differ by no larger share."""
KNEE = "◆"
KNEE_NOTE = (
    f"{KNEE}: the knee of dollars against kWh (Kneedle); beyond it a dollar saves less energy."
)

CENT_USD, WATT_HOUR_KWH = 0.01, 0.001


FRONTIER_COLUMNS = (
    Column("number", "Plan", right=True, for_people=True),
    Column("knee", "", lambda knee: KNEE if knee else "", value="plan.knee"),
    Column("usd", "$ mean", usd_text, right=True, value="plan.usd"),
    Column("kwh", "kWh", number_text, right=True, value="plan.kwh"),
    Column("gco2e", "CO2e", gco2e_text, right=True, rank=3, value="plan.gco2e"),
    Column("takes_s", "Takes", seconds_text, right=True, for_people=True, rank=1,
           value="plan.takes_s"),
    Column("finish_p50_at", "Finish P50", minute_text, rank=5, value="plan.finish_p50_at"),
    Column("finish_p95_at", "Finish P95", minute_text, detail=True, value="plan.finish_p95_at"),
    Column("on_time", "P(on time)", probability_text, right=True, rank=4, interval=True,
           value="plan.on_time"),
    Column("policies", "Choice of", ", ".join, for_people=True, rank=2, value="plan.policies"),
    Column("where", "Pools", pool_lines, for_people=True),
    Column("pools", "Pools", detail=True, value="plan.pools"),
    Column("chosen", "Chosen", detail=True, value="plan.chosen"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierRow:
    """One plan: means of dollars and kWh, CO2e in grams; energy and CO2e None where unknown.

    ``takes_s`` counts from now to the median finish; ``on_time`` is a probability; ``pools`` are
    whole names. ``chosen``: the policy's own plan; ``policies``: names of all that choose it;
    ``knee``: beyond it a dollar saves less energy.
    """

    usd: float
    kwh: float | None
    gco2e: float | None
    takes_s: float
    finish_p50_at: datetime
    finish_p95_at: datetime
    on_time: Estimate
    pools: tuple[str, ...]
    chosen: bool = False
    policies: tuple[str, ...] = ()
    knee: bool = False

    @property
    def is_mix(self) -> bool:
        """Return whether the plan changes pools in the course of time and no policy chooses it."""
        return len(self.pools) > 1 and not self.chosen and not self.policies


def frontier_table(rows: Sequence[FrontierRow], title: str = "Frontier") -> Table:
    """One row per plan, in the order given, numbered from 1; the chosen one stands out."""
    first: dict[tuple[str, ...], int] = {}
    cells = [
        {
            "number": number,
            "plan": row,
            "where": row.pools
            if first.setdefault(row.pools, number) == number or len(row.pools) < 2
            else (f"as plan {first[row.pools]}",),
        }
        for number, row in enumerate(rows, start=1)
    ]
    notes = (KNEE_NOTE,) if any(row.knee for row in rows) else ()
    return Table("", title, FRONTIER_COLUMNS, cells, notes=notes, marks="plan.chosen")


def frontier_rows(
    frontier: Sequence[FrontierPoint],
    job: Job,
    plan: Plan | None,
    now: datetime,
    scenarios: Sequence[Scenario] = (),
) -> tuple[FrontierRow, ...]:
    """Return the points as rows; ``plan`` is the policy's own, whose row is the chosen one.

    ``scenarios`` with the job's own deadline say which policies choose which plan.
    """
    from costopt.optimize.pareto import knee

    bend = knee([(point.usd, point.kwh) for point in frontier])
    chosen = None if plan is None else _chosen(frontier, plan, job)
    choices = [
        (each.policy.name, _chosen(frontier, each.plan, job))
        for each in scenarios
        if each.plan is not None and each.job == job and each.terms == POLICY_TERMS
    ]
    return tuple(
        FrontierRow(
            usd=point.usd,
            kwh=point.kwh,
            gco2e=point.forecast.gco2e,
            takes_s=(point.forecast.finish_p50_at - now).total_seconds(),
            finish_p50_at=point.forecast.finish_p50_at,
            finish_p95_at=point.forecast.finish_p95_at,
            on_time=point.forecast.on_time,
            pools=_pools(point.allocations),
            chosen=point is chosen,
            policies=tuple(dict.fromkeys(name for name, choice in choices if choice is point)),
            knee=number == bend,
        )
        for number, point in enumerate(frontier)
    )


def _chosen(frontier: Sequence[FrontierPoint], plan: Plan, job: Job) -> FrontierPoint | None:
    """The point that is the plan, in the same pools and at nearly the same figures; None: none."""
    own = plan.proposal_of(job.name)
    if own is None:
        return None
    pools = sorted(_pools(plan.allocations))
    distances = {
        index: max(
            abs(point.forecast.usd_mean - own.usd_mean) / max(own.usd_mean, CENT_USD),
            _energy_distance(point.kwh, own.kwh),
        )
        for index, point in enumerate(frontier)
        if sorted(_pools(point.allocations)) == pools
    }
    nearest = min(distances, key=distances.__getitem__, default=None)
    return None if nearest is None or distances[nearest] > ALIKE else frontier[nearest]


def _energy_distance(kwh: float | None, own_kwh: float | None) -> float:
    """As a share of the plan's own; 0 where both are unknown, infinite where one is."""
    if kwh is None or own_kwh is None:
        return 0.0 if kwh is own_kwh else math.inf
    return abs(kwh - own_kwh) / max(own_kwh, WATT_HOUR_KWH)


def _pools(allocations: Sequence[Allocation]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(each.pool) for each in allocations))
