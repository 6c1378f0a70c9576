"""The registry, submissions and proposals, in a SQLite file or a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, fields, replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, Row, func, select

from costopt.database.connection import Database
from costopt.domain.control import (
    AuditEntry,
    DesiredState,
    Halt,
    Mode,
    Proposal,
    ProposalState,
    Submission,
)
from costopt.domain.errors import SpecError
from costopt.registry.redo_log import RedoLog
from costopt.registry.schema import (
    HALTS,
    MIGRATIONS,
    MODES,
    PROPOSALS,
    SCHEDULES,
    SUBMISSIONS,
    append_audit_entry,
    audit_entries_after,
)
from costopt.registry.tokens import SqlTokenStore

REGISTRY = "registry.sqlite"
SCHEDULER = "schedule"
"""Who submits and skips occurrences, in the audit log."""
ADVISORY_LOCK = 0x436F5372
"""The lock of the registry's writers on PostgreSQL ("CoSr")."""


def open_registry(place: Path | str) -> SqlRegistry:
    """Return the registry in a file, created if missing, or at a PostgreSQL URL.

    Raises LedgerError, also for one of an unknown version, and MissingExtraError.
    """
    database = Database("registry", place, ADVISORY_LOCK)
    try:
        MIGRATIONS.apply(database)
    except BaseException:
        database.close()
        raise
    return SqlRegistry(database)


class SqlRegistry:
    """Implements the Registry port; close it, or use it in a ``with``."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.tokens = SqlTokenStore(database)
        self._redo_log = RedoLog(database)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release all connections; closing twice is not an error."""
        self._database.close()

    def restore_lost(self) -> tuple[int, int] | None:
        """Write again what the server lost after it had committed it, as far as this process wrote
        it; return the numbers of the first and the last operator action, None where none was lost.

        Raises LedgerError, and then goes on without them.
        """
        return self._redo_log.restore()

    def submit(self, submission: Submission) -> None:
        """Store a submitted job. Raises SpecError where the name is taken."""
        with self._database.write_transaction() as connection:
            add_submission(connection, submission)
            append_audit_entry(
                connection, submission.submitted_at, submission.submitted_by, "submit",
                submission.name,
            )  # fmt: skip

    def submission(self, name: str) -> Submission | None:
        """Return one job, or None."""
        with self._database.read_transaction() as connection:
            return find_submission(connection, name)

    def submissions(
        self, desired_states: Collection[DesiredState] = (), tenant: str | None = None
    ) -> tuple[Submission, ...]:
        """Return those with one of these desired states, all if none is given, in the order of
        submission; those of one tenant if one is given."""
        with self._database.read_transaction() as connection:
            return list_submissions(connection, desired_states, tenant)

    def schedule_cursor(self, schedule: str) -> datetime | None:
        """Return up to when a recurring job's occurrences were handled; None before the first."""
        with self._database.read_transaction() as connection:
            until: datetime | None = connection.scalar(
                select(SCHEDULES.c.handled_until).where(SCHEDULES.c.name == schedule)
            )
            return until

    def submit_occurrences(
        self, schedule: str, until: datetime, due: Sequence[Submission], skipped: Sequence[str]
    ) -> None:
        """Store the occurrences of a recurring job until a time, and the reasons of those that are
        skipped, all or nothing; later calls begin after that time.

        Raises SpecError where the name of one is taken.
        """
        with self._database.write_transaction() as connection:
            known = SCHEDULES.c.name == schedule
            moved = SCHEDULES.update().where(known).values(handled_until=until)
            if not connection.execute(moved).rowcount:
                connection.execute(SCHEDULES.insert().values(name=schedule, handled_until=until))
            for submission in due:
                add_submission(connection, submission)
                append_audit_entry(connection, until, SCHEDULER, "submit", submission.name)
            for reason in skipped:
                append_audit_entry(connection, until, SCHEDULER, "skip", schedule, reason)

    def set_desired_state(
        self, name: str, desired_state: DesiredState, who: str, at: datetime
    ) -> Submission:
        """Set the desired state, and return the changed submission.

        Raises SpecError for an unknown job, and for a cancelled one that is to run again.
        """
        with self._database.write_transaction() as connection:
            before = require_submission(connection, name)
            if (
                before.desired_state is DesiredState.CANCELLED
                and desired_state is not DesiredState.CANCELLED
            ):
                raise _cancelled(name)
            after = replace(before, desired_state=desired_state)
            update_submission(connection, after)
            append_audit_entry(connection, at, who, desired_state.value, name)
        return after

    def set_priority(self, name: str, priority: int, who: str, at: datetime) -> Submission:
        """Set the priority, and return the changed submission.

        Raises SpecError for an unknown job, and for a cancelled one.
        """
        with self._database.write_transaction() as connection:
            before = require_submission(connection, name)
            if before.desired_state is DesiredState.CANCELLED:
                raise _cancelled(name)
            after = replace(before, priority=priority)
            update_submission(connection, after)
            append_audit_entry(connection, at, who, "priority", name, str(priority))
        return after

    def halt(self, reason: str, who: str, at: datetime) -> Halt:
        """Stop all launches; a halt already in force gets this reason from now on."""
        with self._database.write_transaction() as connection:
            standing = _standing_halt(connection)
            if standing is not None and (standing.reason, standing.who) == (reason, who):
                return standing
            connection.execute(HALTS.delete())
            connection.execute(HALTS.insert().values(id=1, reason=reason, who=who, at=at))
            append_audit_entry(connection, at, who, "halt", "", reason)
        return Halt(reason, who, at)

    def unhalt(self, who: str, at: datetime) -> None:
        """Allow launches again; without a halt this changes nothing."""
        with self._database.write_transaction() as connection:
            if connection.execute(HALTS.delete()).rowcount:
                append_audit_entry(connection, at, who, "unhalt", "")

    def halted(self) -> Halt | None:
        """Return the halt in force, or None."""
        with self._database.read_transaction() as connection:
            return _standing_halt(connection)

    def mode(self) -> Mode | None:
        """Return the mode as last set, None if it never was."""
        with self._database.read_transaction() as connection:
            mode: Mode | None = connection.scalar(select(MODES.c.mode))
            return mode

    def set_mode(self, mode: Mode, who: str, at: datetime) -> None:
        """Set the mode from the next tick on."""
        with self._database.write_transaction() as connection:
            if not connection.execute(MODES.update().values(mode=mode)).rowcount:
                connection.execute(MODES.insert().values(id=1, mode=mode))
            append_audit_entry(connection, at, who, "mode", "", mode.value)

    def propose(self, proposal: Proposal) -> None:
        """Store a proposal; one with the same id is replaced."""
        with self._database.write_transaction() as connection:
            upsert_proposal(connection, proposal)

    def proposals(self, states: Collection[ProposalState] = ()) -> tuple[Proposal, ...]:
        """Return the proposals in one of these states, all if none is given, in their order."""
        with self._database.read_transaction() as connection:
            return proposals_in_states(connection, states)

    def answer(
        self, proposal_id: str, state: ProposalState, who: str, at: datetime, outcome: str = ""
    ) -> Proposal:
        """Answer a proposal. Raises SpecError for an unknown one, or one that is not open."""
        with self._database.write_transaction() as connection:
            after = answer_proposal(connection, proposal_id, state, who, at, outcome)
            append_audit_entry(connection, at, who, state.value, proposal_id, outcome)
        return after

    def changes(self, after: int = 0) -> tuple[tuple[int, AuditEntry], ...]:
        """Return the operator actions after number ``after``, each with its number from 1."""
        with self._database.read_transaction() as connection:
            return audit_entries_after(connection, after)


_STANDING = select(HALTS)
"""Executed before each launch, so it is built only once."""


def _cancelled(name: str) -> SpecError:
    return SpecError(
        f"job {name!r} was cancelled", hint="submit it again under another name", code="cancelled"
    )


def _standing_halt(connection: Connection) -> Halt | None:
    row = connection.execute(_STANDING).first()
    return None if row is None else Halt(row.reason, row.who, row.at)


_FIELDS = [field.name for field in fields(Proposal)]
_COLUMNS = [PROPOSALS.c[name] for name in _FIELDS]
_ANSWERS = {
    ProposalState.OPEN: frozenset(ProposalState),
    ProposalState.APPROVED: frozenset(
        {ProposalState.EXECUTED, ProposalState.REFUSED, ProposalState.WITHDRAWN}
    ),
}


def upsert_proposal(connection: Connection, proposal: Proposal) -> None:
    """Add a proposal; one with the same id is replaced in its place."""
    values = asdict(proposal)
    same = PROPOSALS.c.id == proposal.id
    if connection.execute(PROPOSALS.update().where(same).values(**values)).rowcount:
        return
    last = connection.scalar(select(func.max(PROPOSALS.c.place))) or 0
    connection.execute(PROPOSALS.insert().values(place=last + 1, **values))


def proposals_in_states(
    connection: Connection, states: Collection[ProposalState]
) -> tuple[Proposal, ...]:
    """Return the proposals in one of these states, all if none is given, in their order."""
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
    """Answer a proposal and return it. Raises SpecError for an unknown or already decided one."""
    row = connection.execute(select(*_COLUMNS).where(PROPOSALS.c.id == proposal_id)).first()
    if row is None:
        raise SpecError(
            f"there is no proposal {proposal_id!r}",
            hint="see `costopt daemon approve`",
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


_SUBMISSIONS_FIELDS = [field.name for field in fields(Submission)]
_SUBMISSIONS_COLUMNS = [SUBMISSIONS.c[name] for name in _SUBMISSIONS_FIELDS]


def add_submission(connection: Connection, submission: Submission) -> None:
    """Add a submission. Raises SpecError where the name is taken."""
    if find_submission(connection, submission.name) is not None:
        raise SpecError(
            f"a job named {submission.name!r} was submitted already",
            hint="give the new one another name",
            code="duplicate",
            subject=submission.name,
        )
    last = connection.scalar(select(func.max(SUBMISSIONS.c.place))) or 0
    connection.execute(SUBMISSIONS.insert().values(place=last + 1, **asdict(submission)))


def find_submission(connection: Connection, name: str) -> Submission | None:
    """Return one job, or None."""
    row = connection.execute(
        select(*_SUBMISSIONS_COLUMNS).where(SUBMISSIONS.c.name == name)
    ).first()
    return None if row is None else _submission(row)


def require_submission(connection: Connection, name: str) -> Submission:
    """Return one job. Raises SpecError for an unknown one."""
    submission = find_submission(connection, name)
    if submission is None:
        raise SpecError(
            f"there is no job {name!r}",
            hint="see `costopt status`",
            code="unknown_job",
            subject=name,
        )
    return submission


def list_submissions(
    connection: Connection, desired_states: Collection[DesiredState], tenant: str | None
) -> tuple[Submission, ...]:
    """Return the submissions of a tenant with one of these desired states, in the order of
    submission; None and empty match any."""
    query = select(*_SUBMISSIONS_COLUMNS).order_by(SUBMISSIONS.c.place)
    if desired_states:
        query = query.where(SUBMISSIONS.c.desired_state.in_(list(desired_states)))
    if tenant is not None:
        query = query.where(SUBMISSIONS.c.tenant == tenant)
    return tuple(_submission(row) for row in connection.execute(query))


def update_submission(connection: Connection, submission: Submission) -> None:
    """Store the changed fields of a known job."""
    connection.execute(
        SUBMISSIONS.update()
        .where(SUBMISSIONS.c.name == submission.name)
        .values(desired_state=submission.desired_state, priority=submission.priority)
    )


def _submission(row: Row[Any]) -> Submission:
    return Submission(**dict(zip(_SUBMISSIONS_FIELDS, row, strict=True)))
