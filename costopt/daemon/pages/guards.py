"""The page of what limits the daemon: mode, halt, guards, tenants' limits and operator actions.

A job's own page shows the guards of its policy and its budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from costopt.daemon.admission import load_submission
from costopt.daemon.lists import is_over
from costopt.daemon.pages.layout import PageRequest, clock, take_first
from costopt.daemon.reader import TenantReader
from costopt.daemon.service import DaemonService
from costopt.daemon.shared_state import FleetView, Health
from costopt.domain.account import Tenant
from costopt.domain.control import Mode, Submission
from costopt.domain.errors import failure_message
from costopt.domain.job import Budget
from costopt.domain.limits import LimitSpec, LimitUnit, Resource
from costopt.domain.policy import LIMIT_SPECS, Limits
from costopt.formatting import seconds_text, usd_text, whole_percent_text
from costopt.render.page import (
    Bar,
    Bars,
    Metric,
    Page,
    TableBlock,
    Tiles,
    job_cell,
    make_columns,
    table_block,
)
from costopt.render.table import Cell

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
            _tenants(reader),
            _held(reader),
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
                else f"{halt.who} at {clock(halt.at)}: {halt.reason}",
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
            text += f"; at the present rate spent by {clock(use.spent_at)}"
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
    rows = (
        (spec.label, limit_text(spec, getattr(guards, spec.field)), _effect(spec, now))
        for spec in LIMIT_SPECS.values()
        if hasattr(guards, spec.field)
    )
    return table_block(
        "guards",
        "Account limits",
        make_columns("limit", "#value", "effect"),
        tuple(tuple(Cell(text) for text in row) for row in rows),
        lead="Each job's policy sets further limits.",
    )


def _effect(spec: LimitSpec, now: Mapping[Resource, str]) -> str:
    """Return what the guard does, and what counts against it ``now``."""
    effect = "stops the jobs" if spec.is_budget else "stops launches"
    used = None if spec.resource is None else now.get(spec.resource)
    return effect if used is None else f"{effect}; now {used}"


def _tenants(reader: TenantReader) -> TableBlock:
    limits = [s for s in LIMIT_SPECS.values() if s.field in Tenant.__dataclass_fields__]
    return table_block(
        "tenants",
        "Tenant limits",
        make_columns("tenant", "#weight", *(f"#{spec.label}" for spec in limits)),
        tuple(
            (
                Cell(tenant.name),
                Cell(f"{tenant.weight:g}"),
                *(Cell(limit_text(spec, getattr(tenant, spec.field))) for spec in limits),
            )
            for tenant in reader.tenants()
        ),
        empty="A tenant that the account does not name has weight 1 and no limit of its own.",
    )


def _held(reader: TenantReader) -> TableBlock:
    held = (s for s in reader.jobs() if s.blocked_by and not is_over(s))
    rows, left_out = take_first(held, CHANGES_SHOWN)
    return table_block(
        "held",
        "Blocked jobs",
        make_columns("job", "reason"),
        tuple((job_cell(s.submission.name), Cell(s.blocked_by)) for s in rows),
        empty="No job is blocked.",
        left_out=left_out,
    )


def _changes(service: DaemonService, asked: PageRequest) -> TableBlock:
    matching = [
        c for _, c in service.registry.changes() if asked.wants(c.who, c.what, c.subject, c.detail)
    ]
    rows, left_out = take_first(reversed(matching), CHANGES_SHOWN)
    return table_block(
        "changes",
        "Operator actions",
        make_columns("time", "operator", "action", "subject", "detail"),
        tuple(
            (
                Cell(clock(c.at)),
                Cell(c.who),
                Cell(c.what),
                Cell(c.subject or "the daemon"),
                Cell(c.detail or "—"),
            )
            for c in rows
        ),
        lead="Newest first.",
        empty="No operator actions yet.",
        left_out=left_out,
    )


def _tasks(service: DaemonService) -> TableBlock:
    runs = service.board.task_runs()
    results = ("ok", "failed", "missed")
    return table_block(
        "tasks",
        "Tasks since this daemon started",
        make_columns("task", "#ok", "#failed", "#missed"),
        tuple(
            (
                Cell(task),
                *(
                    Cell(str(runs.get((task, r), 0)), tone=_run_tone(r, runs.get((task, r), 0)))
                    for r in results
                ),
            )
            for task in sorted({task for task, _ in runs})
        ),
        empty="No task ran yet.",
    )


def _run_tone(result: str, number: int) -> str:
    return "bad" if result == "failed" and number else "plain"


NO_LIMIT = "no limit"


def limits_grid(submission: Submission) -> TableBlock:
    """Return a job's guards, or a note that this version of costopt cannot read the job."""
    lead = "A guard stops launches; one of dollars in all or per month also stops the job."
    try:
        known = load_submission(submission)
    except Exception as error:  # noqa: BLE001 - whatever one job's file causes is shown in its place
        return _grid((), "", failure_message(error))
    return _grid(_rows(known.policy.limits, known.job.budget), lead, "")


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


def _grid(rows: Iterable[tuple[str, str, str]], lead: str, empty: str) -> TableBlock:
    cells = tuple(tuple(Cell(text) for text in row) for row in rows)
    heads = make_columns("limit", "#policy", "#job budget")
    return table_block("limits", "Limits", heads, cells, lead, empty)


def _rows(limits: Limits, own: Budget) -> Iterator[tuple[str, str, str]]:
    for spec in LIMIT_SPECS.values():
        text = limit_text(spec, getattr(limits, spec.field))
        budget = limit_text(spec, getattr(own, spec.field)) if hasattr(own, spec.field) else ""
        yield spec.label, text, budget
    kwh = NO_LIMIT if own.max_kwh is None else f"{own.max_kwh:,g}"
    yield "kilowatt-hours in total", "", kwh
