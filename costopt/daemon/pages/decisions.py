"""The pages of decisions, with their reasons and alternatives, and of proposals.

Proposals are answered through the CLI or the API, not on the page.
"""

from __future__ import annotations

from itertools import takewhile

from costopt.daemon.lists import is_over
from costopt.daemon.pages.layout import PageRequest
from costopt.daemon.reader import TenantReader
from costopt.domain.control import Mode, ProposalState
from costopt.domain.events import DecisionMade
from costopt.render.page import FactList, Page, TableBlock
from costopt.render.table import figures, pick
from costopt.views.decision import DECISION_COLUMNS, alternatives_table
from costopt.views.event import EVENT_COLUMNS, describe_event
from costopt.views.job import job_path
from costopt.views.proposal import ANSWER_COLUMNS, PROPOSAL_COLUMNS

FOLLOWED_SHOWN = 50
SCANNED_EVENTS = 500
PROPOSALS_SHOWN = 200
DECISION_KEYS = "decision at choice rule slack_s reason"
LEADS = {
    Mode.RECOMMEND: "{} open; answer with costopt daemon approve or the API.",
    Mode.ENFORCE: "In enforce mode the daemon acts without asking.",
    Mode.OBSERVE: "In observe mode the daemon proposes nothing; it records what it would do.",
}


def decisions_page(reader: TenantReader, asked: PageRequest) -> Page:
    """Return the page of the last decision of each job, open or ended; a job's page has all of its
    decisions."""
    over = {status.submission.name for status in reader.jobs() if is_over(status)}
    wanted = [
        d
        for d in (row.decision for row in reader.decisions())
        if asked.wants(d.job, d.choice(), d.reason, d.rule or "")
    ]
    columns = pick(DECISION_COLUMNS, f"job {DECISION_KEYS}")
    lead = "The last decision of each, newest first, with a link to its alternatives."
    return Page(
        title="Decisions",
        over="Choices and their reasons",
        lead="A decision is recorded when it differs from the one before it.",
        blocks=tuple(
            TableBlock(block_id, title, columns, made, lead, "No decisions.")
            for block_id, title, made in (
                ("open", "Open jobs", [d for d in wanted if d.job not in over]),
                ("ended", "Ended jobs", [d for d in wanted if d.job in over]),
            )
        ),
        filter_label="Job, rule, pool or reason",
    )


def decision_page(reader: TenantReader, decision_id: str) -> Page:
    """Return the page of one decision. Raise SpecError if none has that id."""
    row = reader.decision(decision_id)
    made = row.decision
    others = alternatives_table(made)
    recorded = reader.events(made.job, row.seq, SCANNED_EVENTS)
    events = takewhile(
        lambda event: not isinstance(event, DecisionMade), (each.event for each in recorded)
    )
    facts = figures(pick(DECISION_COLUMNS, "choice reason rule slack_s at"), made)
    return Page(
        title=decision_id,
        over=f"A decision for job {made.job}",
        lead=made.reason,
        blocks=(
            FactList("decision", "The decision", facts),
            TableBlock(
                "alternatives", "Alternatives", others.columns, others.rows,
                "Dollars that each was expected to cost until the job is done.",
                "No alternatives were recorded.",
            ),
            TableBlock(
                "followed", "Subsequent events", pick(EVENT_COLUMNS, "at event detail"),
                [each for each in map(describe_event, events) if not each.routine],
                "Until the next decision.", "Nothing yet.", FOLLOWED_SHOWN,
            ),
        ),
        over_href=job_path(made.job),
    )  # fmt: skip


def proposals_page(reader: TenantReader, asked: PageRequest) -> Page:
    """Return the page of proposals: the open ones, then those that were answered or withdrawn."""
    every = [p for p in reader.proposals() if asked.wants(p.id, p.job, p.pool, p.reason)]
    waiting = [p for p in every if p.state is ProposalState.OPEN]
    answered = [p for p in reversed(every) if p.state is not ProposalState.OPEN]
    columns = tuple(column for column in PROPOSAL_COLUMNS if not column.detail)
    return Page(
        title="Proposals",
        over="Actions awaiting approval",
        lead=LEADS[reader.fleet().mode].format(len(waiting)),
        blocks=(
            TableBlock(
                "open", "Open", columns, waiting,
                "costopt daemon approve PROPOSAL executes one; with --reject it declines it.",
                "No open proposals.", PROPOSALS_SHOWN,
            ),
            TableBlock(
                "answered", "Answered", (*columns, *ANSWER_COLUMNS), answered,
                empty="No answered proposals.", most=PROPOSALS_SHOWN,
            ),
        ),
        filter_label="Job or pool",
    )  # fmt: skip
