"""What the daemon would do, and what people answered."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, fields, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, func, select

from costopt.domain.control import Proposal, ProposalState
from costopt.domain.errors import SpecError
from costopt.registry.tables import PROPOSALS

_FIELDS = [field.name for field in fields(Proposal)]
_COLUMNS = [PROPOSALS.c[name] for name in _FIELDS]
_ANSWERS = {
    ProposalState.OPEN: frozenset(ProposalState),
    ProposalState.APPROVED: frozenset(
        {ProposalState.EXECUTED, ProposalState.REFUSED, ProposalState.WITHDRAWN}
    ),
}


def upsert_proposal(connection: Connection, proposal: Proposal) -> None:
    """Add it; one with the same id is replaced in its place."""
    values = asdict(proposal)
    same = PROPOSALS.c.id == proposal.id
    if connection.execute(PROPOSALS.update().where(same).values(**values)).rowcount:
        return
    last = connection.scalar(select(func.max(PROPOSALS.c.place))) or 0
    connection.execute(PROPOSALS.insert().values(place=last + 1, **values))


def proposals_in_states(
    connection: Connection, states: Collection[ProposalState]
) -> tuple[Proposal, ...]:
    """Those in one of these states, all where none is named, in order of proposal."""
    query = select(*_COLUMNS).order_by(PROPOSALS.c.place)
    if states:
        query = query.where(PROPOSALS.c.state.in_(list(states)))
    return tuple(_proposal(row) for row in connection.execute(query))


def answer_proposal(
    connection: Connection,
    proposal_id: str,
    state: ProposalState,
    who: str,
    at: datetime,
    outcome: str,
) -> Proposal:
    """Raises SpecError where there is none of that id, or this is no answer to it any more."""
    row = connection.execute(select(*_COLUMNS).where(PROPOSALS.c.id == proposal_id)).first()
    if row is None:
        raise SpecError(
            f"there is no proposal {proposal_id!r}",
            hint="see `costopt approve`",
            code="unknown_proposal",
        )
    before = _proposal(row)
    if state not in _ANSWERS.get(before.state, frozenset()):
        raise SpecError(
            f"proposal {proposal_id!r} is {before.state.value} already", code="already_decided"
        )
    after = replace(before, state=state, answered_by=who, answered_at=at, outcome=outcome)
    upsert_proposal(connection, after)
    return after


def _proposal(row: Row[Any]) -> Proposal:
    return Proposal(**dict(zip(_FIELDS, row, strict=True)))
