"""A run's report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from costopt.domain.events import Event, JobFailed, TaskEnded
from costopt.domain.fleet import ProviderCharge
from costopt.formatting import (
    UNKNOWN_TEXT,
    gco2e_text,
    sci_text,
    usd_micros_text,
    wh_text,
)
from costopt.ledger.run_view import RunView
from costopt.ledger.summary import JobState, JobSummary
from costopt.render.html import render_page
from costopt.render.reports.run_charts import (
    energy_plot,
    progress_plot,
    spend_plot,
    timeline,
)
from costopt.render.reports.run_rates import carbon_plot, price_plot
from costopt.render.table import Table, pick
from costopt.views.bill import ledger_drift
from costopt.views.decision import decision_table
from costopt.views.event import EVENT_COLUMNS, EventText, describe_events
from costopt.views.headline import cost_sentence, deadline_verdict
from costopt.views.job import job_tiles
from costopt.views.node import columns_until
from costopt.views.planned import planned_table
from costopt.views.task import tasks_table

NOTABLE_SHOWN = 30
EVENTS_SHOWN = 1000
NODES_SHOWN = 200


def run_page(
    events: Iterable[Event],
    *,
    now: datetime,
    title: str,
    charges: Sequence[ProviderCharge] = (),
) -> str:
    """Return the report of one job's events at ``now`` as one self-contained HTML document.

    ``charges`` are what providers' own accounts say. Raises LedgerError for
    no events or several jobs'.
    """
    run = RunView.of(events, now)
    summary = run.summary
    described = describe_events(run.events)
    notable = [row for row in described if not row.routine]
    ended = {event.task: event for event in run.events if isinstance(event, TaskEnded)}
    late = summary.on_time is False or summary.state is JobState.FAILED
    return render_page(
        "run.html.j2",
        title=title,
        made_at=run.now,
        over=_over(summary),
        verdict=deadline_verdict(summary),
        verdict_tone="bad" if late else "good" if summary.on_time else "",
        lead=_lead(run),
        tiles=job_tiles(run),
        timeline=timeline(run),
        price=price_plot(run),
        carbon=carbon_plot(run),
        decisions=decision_table(run.decisions, run.begun_at, "Decisions"),
        planned=planned_table(run.events, run.curves.spend, run.ended_at),
        spend=spend_plot(run),
        energy=energy_plot(run),
        progress=progress_plot(run),
        tasks=tasks_table(summary.job, ended.values(), summary.work_units),
        nodes=Table("", "Nodes", columns_until(run.now), run.intervals[:NODES_SHOWN]),
        nodes_left_out=max(0, len(run.intervals) - NODES_SHOWN),
        notable=_events("What changed the run", notable[:NOTABLE_SHOWN]),
        notable_rest=_events("More of that", notable[NOTABLE_SHOWN:EVENTS_SHOWN]),
        all_events=_events("All events in order", described[:EVENTS_SHOWN]),
        event_count=len(run.events),
        events_left_out=max(0, len(run.events) - EVENTS_SHOWN),
        how=(*(("Billed", ledger_drift(charge, run)) for charge in charges), *_how(summary)),
    )


def _over(summary: JobSummary) -> str:
    parts = [f"Job {summary.job}"]
    if summary.policy is not None:
        parts += [f"policy {summary.policy}", f"strategy {summary.strategy}"]
    return " · ".join(parts)


def _lead(run: RunView) -> str:
    cost = cost_sentence(run.summary)
    if run.summary.state is not JobState.FAILED:
        return cost
    said = " ".join(event.message for event in run.events[-20:] if isinstance(event, JobFailed))
    return f"{cost} {said}"


def _events(title: str, rows: Sequence[EventText]) -> Table:
    return Table("", title, pick(EVENT_COLUMNS, "at event detail"), rows)


def _how(summary: JobSummary) -> tuple[tuple[str, str], ...]:
    ratio, guarantee = summary.speed_ratio, summary.guarantee
    speed = f"{summary.baseline_basis} of the job"
    if ratio is not None:
        speed += f", {ratio:.3g} times the declared one"
    work = "As the trainer reported it. Lost work was done, not saved, and done again."
    if guarantee:
        work += f" The result is {guarantee}, against a run that nothing disturbed."
    return (
        (
            "Dollars",
            "Sum over nodes of price × time from launch to end; the provider confirmed launch and "
            "end of each node. A change of price counts from its instant. Root volumes, "
            "checkpoints in a store and traffic between regions are included at list prices, where "
            "these are known.",
        ),
        (
            "On-demand baseline",
            "The whole job without interruption on the cheapest allowed on-demand pool"
            + (f", {summary.baseline_pool}" if summary.baseline_pool else ", which is unknown")
            + f": {usd_micros_text(summary.baseline_usd_micros)} "
            f"and {wh_text(summary.baseline_wh)} {speed}. "
            "Savings count it for the work done so far.",
        ),
        (
            "Energy",
            "Node power × time × PUE: busy power while the node's gang trained, idle power while "
            f"it started, restored or waited. Basis: {summary.energy_basis or UNKNOWN_TEXT}.",
        ),
        (
            "Emissions",
            "Energy of each hour × the carbon intensity of the node's region in that hour, where "
            "it was recorded, else × the annual mean. "
            f"Basis: {summary.carbon_basis or UNKNOWN_TEXT}. Embodied carbon is not included.",
        ),
        (
            "Market-based emissions",
            f"{gco2e_text(summary.market_based_gco2e)} CO2e: energy × what the account's "
            "electricity contracts state; unknown where none covers all of it.",
        ),
        (
            "Embodied carbon",
            f"{gco2e_text(summary.embodied_gco2e)} CO2e: of making each server, the share of the "
            "node's vCPUs and hours in the server's and its lifetime's. Unknown where no figure of "
            "the whole server is published.",
        ),
        (
            "Software carbon intensity",
            f"{sci_text(summary.sci_gco2e_per_unit, summary.unit)}: SCI 1.1, (emissions + embodied "
            "carbon) / work done, location-based.",
        ),
        ("Work", work),
    )
