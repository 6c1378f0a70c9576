"""The pages of decisions, with their reasons and alternatives, and of proposals.

Proposals are answered through the CLI or the API, not on the page.
"""

from __future__ import annotations

from costopt.daemon.lists import is_over
from costopt.daemon.pages.layout import (
    PageRequest,
    clock,
    decision_text,
    pool_text,
    slack_cell,
    take_first,
)
from costopt.daemon.reader import TenantReader
from costopt.daemon.shared_state import DecisionRow
from costopt.domain.control import ActionKind, Mode, Proposal, ProposalState
from costopt.domain.events import DecisionMade
from costopt.formatting import UNKNOWN_TEXT, usd_per_hour_text, usd_text
from costopt.render.page import (
    FactList,
    Page,
    TableBlock,
    decision_cell,
    job_cell,
    make_columns,
    table_block,
)
from costopt.render.table import Cell, Column
from costopt.views.event import describe_event

DECISIONS_SHOWN = 300
FOLLOWED_SHOWN = 50
SCANNED_EVENTS = 500
COLUMNS = make_columns("decision", "time", "choice", "rule", "#slack", "reason")


def decisions_page(reader: TenantReader, asked: PageRequest) -> Page:
    """Return the page of the last decision of each job, open or ended; a job's page has all of its
    decisions."""
    ended = {status.submission.name for status in reader.jobs() if is_over(status)}
    wanted = [
        d
        for d in (row.decision for row in reader.decisions())
        if asked.wants(d.job, decision_text(d), d.reason, d.rule or "")
    ]
    return Page(
        title="Decisions",
        over="Choices and their reasons",
        lead="A decision is recorded when it differs from the one before it.",
        blocks=(
            _last("open", "Open jobs", [d for d in wanted if d.job not in ended]),
            _last("ended", "Ended jobs", [d for d in wanted if d.job in ended]),
        ),
        filter_label="Job, rule, pool or reason",
    )


def _last(block_id: str, title: str, made: list[DecisionMade]) -> TableBlock:
    rows, left_out = take_first(made, DECISIONS_SHOWN)
    return table_block(
        block_id,
        title,
        (*make_columns("job"), *COLUMNS),
        tuple((job_cell(d.job), *decision_row(d)) for d in rows),
        lead="The last decision of each, newest first, with a link to its alternatives.",
        empty="No decisions.",
        left_out=left_out,
    )


def decision_row(decision: DecisionMade) -> tuple[Cell, ...]:
    """Return the cells of a decision, in the order of ``COLUMNS``."""
    return (
        decision_cell(decision.decision_id),
        Cell(clock(decision.at)),
        Cell(decision_text(decision)),
        Cell(decision.rule or "—", tone="plain" if decision.rule is None else "note"),
        slack_cell(decision.slack_s),
        Cell(decision.reason),
    )


def last_decisions(rows: tuple[tuple[Cell, ...], ...], lead: str) -> TableBlock:
    """Return the table of a job's last decisions."""
    return table_block("decisions", "Decisions", COLUMNS, rows, lead, "No decision was made yet.")


def decision_page(reader: TenantReader, decision_id: str) -> Page:
    """Return the page of one decision. Raise SpecError if none has that id."""
    row = reader.decision(decision_id)
    made = row.decision
    slack = slack_cell(made.slack_s)
    facts = (
        ("Choice", decision_text(made)),
        ("Reason", made.reason),
        ("Binding rule", made.rule or "none"),
        ("Slack", slack.text),
        ("Time", clock(made.at)),
    )
    return Page(
        title=decision_id,
        over=f"A decision for job {made.job}",
        lead=made.reason,
        blocks=(
            FactList("decision", "The decision", facts),
            _alternatives(made),
            _followed(reader, row),
        ),
        over_href=job_cell(made.job).href,
    )


def _alternatives(made: DecisionMade) -> TableBlock:
    known = [value for _, value, _ in made.alternatives if value is not None]
    return table_block(
        "alternatives",
        "Alternatives",
        make_columns(
            "alternative",
            "#expected cost to completion",
            "#above the cheapest",
            "chosen",
            "estimates",
        ),
        tuple(
            (
                Cell(what),
                Cell(usd_text(value)),
                Cell(UNKNOWN_TEXT if value is None else usd_text(value - min(known))),
                Cell("chosen", tone="good") if what == decision_text(made) else Cell("—"),
                Cell(note),
            )
            for what, value, note in made.alternatives
        ),
        lead="Dollars that each was expected to cost until the job is done.",
        empty="No alternatives were recorded.",
    )


def _followed(reader: TenantReader, row: DecisionRow) -> TableBlock:
    """Return the events up to the next decision: launches, refusals and guard violations."""
    events = []
    for recorded in reader.events(row.decision.job, row.seq, SCANNED_EVENTS):
        if isinstance(recorded.event, DecisionMade):
            break
        events.append(describe_event(recorded.event))
    rows, left_out = take_first((each for each in events if not each.routine), FOLLOWED_SHOWN)
    return table_block(
        "followed",
        "Subsequent events",
        make_columns("time", "event", "detail"),
        tuple((Cell(clock(r.at)), Cell(r.what, tone=r.tone), Cell(r.detail)) for r in rows),
        lead="Until the next decision.",
        empty="Nothing yet.",
        left_out=left_out,
    )


SHOWN = 200
ASKED = ("proposal", "job", "action", "target", "#price", "reason", "proposed at")
TONES = {
    ProposalState.EXECUTED: "good",
    ProposalState.REJECTED: "bad",
    ProposalState.REFUSED: "bad",
}


def proposals_page(reader: TenantReader, asked: PageRequest) -> Page:
    """Return the page of proposals: the open ones, then those that were answered or withdrawn."""
    every = [p for p in reader.proposals() if asked.wants(p.id, p.job, p.pool, p.reason)]
    waiting = [p for p in every if p.state is ProposalState.OPEN]
    answered = [p for p in reversed(every) if p.state is not ProposalState.OPEN]
    return Page(
        title="Proposals",
        over="Actions awaiting approval",
        lead=_lead(reader.fleet().mode, len(waiting)),
        blocks=(
            _grid(
                "open", "Open", make_columns(*ASKED), [_row(p) for p in waiting],
                "No open proposals.",
                "costopt daemon approve PROPOSAL executes one; with --reject it declines it.",
            ),
            _grid(
                "answered", "Answered",
                make_columns(*ASKED, "answer", "answered by", "answered at"),
                [
                    (
                        *_row(p),
                        Cell(p.state.value, tone=TONES.get(p.state, "plain")),
                        Cell(f"{p.answered_by or '—'}{p.outcome and ': '}{p.outcome}"),
                        Cell(clock(p.answered_at) or "—"),
                    )
                    for p in answered
                ],
                "No answered proposals.",
            ),
        ),
        filter_label="Job or pool",
    )  # fmt: skip


def _lead(mode: Mode, waiting: int) -> str:
    match mode:
        case Mode.RECOMMEND:
            return f"{waiting} open; answer with costopt daemon approve or the API."
        case Mode.ENFORCE:
            return "In enforce mode the daemon acts without asking."
        case Mode.OBSERVE:
            return "In observe mode the daemon proposes nothing; it records what it would do."


def _grid(
    grid_id: str,
    title: str,
    named: tuple[Column, ...],
    rows: list[tuple[Cell, ...]],
    empty: str,
    lead: str = "",
) -> TableBlock:
    shown, left_out = take_first(rows, SHOWN)
    return table_block(grid_id, title, named, shown, lead, empty, left_out=left_out)


def _row(proposal: Proposal) -> tuple[Cell, ...]:
    launch = proposal.kind is ActionKind.LAUNCH
    pool = pool_text(proposal.pool)
    return (
        Cell(proposal.id),
        job_cell(proposal.job),
        Cell(proposal.kind.value),
        Cell(f"{proposal.nodes} × {pool}" if launch else f"{proposal.node_id} in {pool}"),
        Cell(usd_per_hour_text(proposal.usd_per_hour) if launch else "—"),
        Cell(proposal.reason),
        Cell(clock(proposal.proposed_at)),
    )
