"""The page of what limits the daemon: mode, halt, guards, tenants' limits and operator actions.

A job's own page shows the guards of its policy and its budget.
"""

from __future__ import annotations

from collections.abc import Sequence

from costopt.daemon.intake.admission import load_submission
from costopt.daemon.lists import is_over
from costopt.daemon.pages.layout import PageRequest
from costopt.daemon.reader import TenantReader
from costopt.daemon.service import DaemonService
from costopt.daemon.shared_state import FleetView, Health, JobStatus
from costopt.domain.control import Mode, Submission
from costopt.domain.errors import failure_message
from costopt.domain.limits import Resource
from costopt.domain.policy import LIMIT_SPECS
from costopt.formatting import second_text, seconds_text, usd_text, whole_percent_text
from costopt.render.page import Bar, Bars, Metric, Page, TableBlock, Tiles
from costopt.render.table import pick
from costopt.views.audit import AUDIT_COLUMNS, TASK_RUN_COLUMNS
from costopt.views.job import JOB_COLUMNS
from costopt.views.limit import NO_LIMIT, SETTING_COLUMNS, limit_text, tenant_columns

CHANGES_SHOWN = 100
NEARLY_SPENT = 0.8
MODES = {
    Mode.OBSERVE: "plans and records, and never acts",
    Mode.RECOMMEND: "asks before it acts",
    Mode.ENFORCE: "acts without asking",
}


def guards_page(reader: TenantReader, asked: PageRequest) -> Page:
    """Return the page of mode, halt, guards and limits; data of all tenants only for a caller who
    sees them all."""
    fleet, health, whole = reader.fleet(), reader.health(), reader.whole
    return Page(
        title="Guards",
        over="Mode, limits and health",
        lead="Guards stop launches, not checkpoints.",
        blocks=(
            _tiles(fleet, health),
            budget_bars(reader),
            *(() if whole is None else (_guards(whole, fleet),)),
            TableBlock(
                "tenants",
                "Tenant limits",
                tenant_columns(),
                reader.tenants(),
                empty="A tenant that the account does not name has weight 1 and no own limit.",
            ),
            held_block([s for s in reader.jobs() if not is_over(s)]),
            *(() if whole is None else (_changes(whole, asked), _tasks(whole))),
        ),
        filter_label="" if whole is None else "Operator, action or subject",
    )


def _tiles(fleet: FleetView, health: Health) -> Tiles:
    halt = fleet.halt
    return Tiles(
        (
            Metric("Mode", fleet.mode.value, "", MODES[fleet.mode]),
            Metric(
                "Launches", "allowed" if halt is None else "halted", "",
                "no halt" if halt is None
                else f"{halt.who} at {second_text(halt.at)}: {halt.reason}",
            ),
            Metric(
                "Last tick",
                "never"
                if health.tick_age_s is None
                else f"{seconds_text(health.tick_age_s)} ago",
                "wall clock", "the loop runs" if health.alive else "the loop is stuck",
            ),
            Metric(
                "Leader", "yes" if health.leads else "no", "",
                "one daemon per database acts",
            ),
        )
    )  # fmt: skip


def budget_bars(reader: TenantReader) -> Bars:
    """Return what is spent of each limit on dollars, of the account first."""
    bars = []
    for use in reader.budgets():
        share = use.usd / use.limit_usd if use.limit_usd else 1.0
        text = f"{usd_text(use.usd)} of {usd_text(use.limit_usd)} ({whole_percent_text(share)})"
        if use.spent_at is not None:
            text += f"; at the present rate spent by {second_text(use.spent_at)}"
        tone = "bad" if share >= 1 else "note" if share >= NEARLY_SPENT else "plain"
        bars.append(Bar(f"{use.holder}, {use.label}", text, share, tone))
    return Bars(
        "budgets", "Budgets", tuple(bars), "Dollars spent of each limit. At its limit, jobs stop.",
        "No limit on dollars at the last tick.",
    )  # fmt: skip


def _guards(service: DaemonService, fleet: FleetView) -> TableBlock:
    guards = service.account.guards
    now = {
        Resource.USD_PER_HOUR: usd_text(fleet.usd_per_hour),
        Resource.NODES: str(len(fleet.nodes)),
    }
    rows = []
    for spec in LIMIT_SPECS.values():
        if hasattr(guards, spec.field):
            effect = "stops the jobs" if spec.is_budget else "stops launches"
            if spec.resource in now:
                effect += f"; now {now[spec.resource]}"
            value = limit_text(spec, getattr(guards, spec.field))
            rows.append({"limit": spec.label, "value": value, "effect": effect})
    columns = pick(SETTING_COLUMNS, "limit value effect")
    return TableBlock(
        "guards", "Account limits", columns, rows, "Each job's policy sets further limits."
    )


def held_block(statuses: Sequence[JobStatus]) -> TableBlock:
    """Return the table of those of the jobs that get no nodes now."""
    held = [status for status in statuses if status.blocked_by]
    columns = pick(JOB_COLUMNS, "job blocked_by")
    lead, empty = "Jobs that get no nodes now.", "No job is blocked."
    return TableBlock("held", "Blocked jobs", columns, held, lead, empty)


def _changes(service: DaemonService, asked: PageRequest) -> TableBlock:
    changes = [change for _, change in service.registry.changes()]
    every = [c for c in changes if asked.wants(c.who, c.what, c.subject, c.detail)]
    return TableBlock(
        "changes", "Operator actions", AUDIT_COLUMNS, every[::-1], "Newest first.",
        "No operator actions yet.", CHANGES_SHOWN,
    )  # fmt: skip


def _tasks(service: DaemonService) -> TableBlock:
    runs, (_, *results) = service.board.task_runs(), TASK_RUN_COLUMNS
    rows = [
        {"task": task, **{column.key: runs.get((task, column.key), 0) for column in results}}
        for task in sorted({task for task, _ in runs})
    ]
    title = "Tasks since this daemon started"
    return TableBlock("tasks", title, TASK_RUN_COLUMNS, rows, empty="No task ran yet.")


def limits_block(submission: Submission) -> TableBlock:
    """Return a job's guards, or a note that this version of costopt cannot read the job."""
    columns = pick(SETTING_COLUMNS, "limit policy budget")
    lead = "A guard stops launches; one of dollars in all or per month also stops the job."
    try:
        known = load_submission(submission)
    except Exception as error:  # noqa: BLE001 - whatever one job's file causes is shown in its place
        return TableBlock("limits", "Limits", columns, (), lead, failure_message(error))
    limits, own = known.policy.limits, known.job.budget
    rows = [
        {
            "limit": spec.label,
            "policy": limit_text(spec, getattr(limits, spec.field)),
            "budget": limit_text(spec, getattr(own, spec.field))
            if hasattr(own, spec.field)
            else None,
        }
        for spec in LIMIT_SPECS.values()
    ]
    kwh = NO_LIMIT if own.max_kwh is None else f"{own.max_kwh:,g}"
    rows.append({"limit": "kilowatt-hours in total", "budget": kwh})
    return TableBlock("limits", "Limits", columns, rows, lead)
