"""The page of what the daemon asks for. Answers are given by the CLI or the API."""

from __future__ import annotations

from costopt.daemon.pages.asked import PageRequest, take_first
from costopt.daemon.pages.words import clock, pool_text
from costopt.daemon.reader import TenantReader
from costopt.domain.control import ActionKind, Mode, Proposal, ProposalState
from costopt.formatting import usd_per_hour_text
from costopt.render.page import Page, TableBlock, job_cell, make_columns, table_block
from costopt.render.table import Cell, Column

SHOWN = 200
ASKED = ("proposal", "job", "action", "what", "#price", "reason", "asked at")
TONES = {
    ProposalState.EXECUTED: "good",
    ProposalState.REJECTED: "bad",
    ProposalState.REFUSED: "bad",
}


def proposals_page(reader: TenantReader, asked: PageRequest) -> Page:
    """Open ones, then those that were answered or withdrawn."""
    every = [p for p in reader.proposals() if asked.wants(p.id, p.job, p.pool, p.reason)]
    waiting = [p for p in every if p.state is ProposalState.OPEN]
    answered = [p for p in reversed(every) if p.state is not ProposalState.OPEN]
    return Page(
        title="Proposals",
        over="What the daemon asks for",
        lead=_lead(reader.mode(), len(waiting)),
        blocks=(
            _grid(
                "open", "Open", make_columns(*ASKED), [_row(p) for p in waiting],
                "Nothing waits for an answer.", "costopt approve PROPOSAL lets it happen.",
            ),
            _grid(
                "answered", "Answered", make_columns(*ASKED, "answer", "by", "at"),
                [
                    (
                        *_row(p),
                        Cell(p.state.value, tone=TONES.get(p.state, "plain")),
                        Cell(f"{p.answered_by or '—'}{p.outcome and ': '}{p.outcome}"),
                        Cell(clock(p.answered_at) or "—"),
                    )
                    for p in answered
                ],
                "Nothing was answered yet.",
            ),
        ),
        filter_label="Proposals for which job or pool?",
    )  # fmt: skip


def _lead(mode: Mode, waiting: int) -> str:
    match mode:
        case Mode.RECOMMEND:
            return f"{waiting} wait for an answer, given by costopt approve or the API."
        case Mode.ENFORCE:
            return "In mode enforce the daemon acts by itself and asks for nothing."
        case Mode.OBSERVE:
            return "In mode observe the daemon asks for nothing; it records what it would do."


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
