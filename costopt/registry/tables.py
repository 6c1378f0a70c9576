"""The registry's tables as queries see them; ``migrations`` makes them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Dialect, Float, Integer, String, TypeDecorator, column, table

from costopt.domain.control import ActionKind, DesiredState, Mode, ProposalState


class UtcDateTime(TypeDecorator[datetime]):
    """An aware time, as text in UTC that sorts as times do."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Raises ValueError for a naive time."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"the time {value.isoformat()} has no zone")
        return value.astimezone(UTC).isoformat(timespec="microseconds")

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """The time again, in UTC."""
        return None if value is None else datetime.fromisoformat(value)


class EnumText(TypeDecorator[StrEnum]):
    """A member of an enumeration, by its value."""

    impl = String
    cache_ok = True

    def __init__(self, kind: Callable[[str], StrEnum]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: StrEnum | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """The member's value."""
        return None if value is None else value.value

    def process_result_value(self, value: Any, dialect: Dialect) -> StrEnum | None:  # noqa: ARG002
        """The member again."""
        return None if value is None else self.kind(value)


SUBMISSIONS = table(
    "submissions",
    column("name", String),
    column("place", Integer),
    column("tenant", String),
    column("priority", Integer),
    column("job_document", String),
    column("policy_document", String),
    column("workdir", String),
    column("submitted_at", UtcDateTime),
    column("submitted_by", String),
    column("desired_state", EnumText(DesiredState)),
)

PROPOSALS = table(
    "proposals",
    column("id", String),
    column("place", Integer),
    column("job", String),
    column("kind", EnumText(ActionKind)),
    column("pool", String),
    column("nodes", Integer),
    column("reason", String),
    column("proposed_at", UtcDateTime),
    column("node_id", String),
    column("usd_per_hour", Float),
    column("state", EnumText(ProposalState)),
    column("answered_by", String),
    column("answered_at", UtcDateTime),
    column("outcome", String),
)

CHANGES = table(
    "changes",
    column("number", Integer),
    column("at", UtcDateTime),
    column("who", String),
    column("what", String),
    column("subject", String),
    column("detail", String),
)

HALTS = table(
    "halts",
    column("id", Integer),
    column("reason", String),
    column("who", String),
    column("at", UtcDateTime),
)

MODES = table("modes", column("id", Integer), column("mode", EnumText(Mode)))

TOKENS = table(
    "tokens",
    column("name", String),
    column("scopes", String),
    column("lookup", String),
    column("digest", String),
    column("added_at", UtcDateTime),
    column("added_by", String),
    column("tenant", String),
)
