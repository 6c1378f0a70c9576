"""A proposal of the daemon. A row is a Proposal, or what the daemon's API answers."""

from __future__ import annotations

from typing import Any

from costopt.domain.control import ProposalState
from costopt.formatting import minute_text, pool_text, pools_text, usd_text
from costopt.render.table import Column, value_at
from costopt.views.job import job_path

_TONES = {
    ProposalState.EXECUTED: "good",
    ProposalState.REJECTED: "bad",
    ProposalState.REFUSED: "bad",
}


def _answer(proposal: Any) -> str:
    outcome = value_at(proposal, "outcome")
    return f"{value_at(proposal, 'answered_by') or '–'}{outcome and ': '}{outcome}"


PROPOSAL_COLUMNS = (
    Column("id", "ID"),
    Column("job", "Job", link=job_path),
    Column("kind", "Action"),
    Column("nodes", "Nodes", right=True),
    Column("pool", "Pool", pool_text),
    Column("node_id", "Node", rank=2),
    Column("usd_per_hour", "$/h each", usd_text, right=True, rank=1),
    Column("reason", "Reason", pools_text, fold_at=50),
    Column("proposed_at", "Proposed", minute_text, rank=3),
    Column("state", "State", detail=True),
)
ANSWER_COLUMNS = (
    Column(
        "state", "Answer",
        tone=lambda proposal: _TONES.get(value_at(proposal, "state"), "plain"),
    ),
    Column("answered_by", "Answered by", value=_answer),
    Column("answered_at", "Answered at", minute_text),
)  # fmt: skip
"""Columns of an answered proposal, beside the others."""
