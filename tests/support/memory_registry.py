"""A registry that lives and dies with the process."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from threading import RLock

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

STILL_OPEN = {
    ProposalState.OPEN: frozenset(ProposalState),
    ProposalState.APPROVED: frozenset(
        {ProposalState.EXECUTED, ProposalState.REFUSED, ProposalState.WITHDRAWN}
    ),
}


class MemoryRegistry:
    """Implements the Registry port."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._submissions: dict[str, Submission] = {}
        self._cursors: dict[str, datetime] = {}
        self._proposals: dict[str, Proposal] = {}
        self._changes: list[AuditEntry] = []
        self._halt: Halt | None = None
        self._mode: Mode | None = None

    def restore_lost(self) -> tuple[int, int] | None:
        return None

    def submit(self, submission: Submission) -> None:
        """Take a job in. Raises SpecError where the name is taken."""
        with self._lock:
            if submission.name in self._submissions:
                raise SpecError(
                    f"a job named {submission.name!r} was submitted already",
                    hint="give the new one another name",
                    code="duplicate",
                    subject=submission.name,
                )
            self._submissions[submission.name] = submission
            self._note(submission.submitted_at, submission.submitted_by, "submit", submission.name)

    def submission(self, name: str) -> Submission | None:
        """One job, or None."""
        return self._submissions.get(name)

    def submissions(
        self, desired_states: Collection[DesiredState] = (), tenant: str | None = None
    ) -> tuple[Submission, ...]:
        """Return those with one of these desired states, all if none is given, in the order of
        submission; those of one tenant if one is given."""
        with self._lock:
            known = tuple(self._submissions.values())
        return tuple(
            s
            for s in known
            if (not desired_states or s.desired_state in desired_states)
            and tenant in (None, s.tenant)
        )

    def schedule_cursor(self, schedule: str) -> datetime | None:
        """Until when occurrences were handled; None before the first."""
        return self._cursors.get(schedule)

    def submit_occurrences(
        self, schedule: str, until: datetime, due: Sequence[Submission], skipped: Sequence[str]
    ) -> None:
        """All or nothing. Raises SpecError where a name is taken."""
        with self._lock:
            if any(each.name in self._submissions for each in due):
                raise SpecError(
                    "a job of the name of an occurrence was submitted", code="duplicate"
                )
            self._cursors[schedule] = until
            for each in due:
                self._submissions[each.name] = each
                self._note(until, "schedule", "submit", each.name)
            for reason in skipped:
                self._note(until, "schedule", "skip", schedule, reason)

    def set_desired_state(
        self, name: str, desired_state: DesiredState, who: str, at: datetime
    ) -> Submission:
        """Raises SpecError for an unknown job, and for a cancelled one that is to run again."""
        with self._lock:
            before = self._known(name)
            if (
                before.desired_state is DesiredState.CANCELLED
                and desired_state is not DesiredState.CANCELLED
            ):
                raise SpecError(f"job {name!r} was cancelled", code="cancelled")
            self._submissions[name] = replace(before, desired_state=desired_state)
            self._note(at, who, desired_state.value, name)
            return self._submissions[name]

    def set_priority(self, name: str, priority: int, who: str, at: datetime) -> Submission:
        """Raises SpecError for an unknown job, and for a cancelled one."""
        with self._lock:
            before = self._known(name)
            if before.desired_state is DesiredState.CANCELLED:
                raise SpecError(f"job {name!r} was cancelled", code="cancelled")
            self._submissions[name] = replace(before, priority=priority)
            self._note(at, who, "priority", name, str(priority))
            return self._submissions[name]

    def halt(self, reason: str, who: str, at: datetime) -> Halt:
        """Stop all launches; of a halt that stands this is the reason from now on."""
        with self._lock:
            if self._halt is None or (self._halt.reason, self._halt.who) != (reason, who):
                self._halt = Halt(reason, who, at)
                self._note(at, who, "halt", "", reason)
            return self._halt

    def unhalt(self, who: str, at: datetime) -> None:
        """Let launches happen again; without a halt nothing happens."""
        with self._lock:
            if self._halt is not None:
                self._halt = None
                self._note(at, who, "unhalt", "")

    def halted(self) -> Halt | None:
        """The halt that stands."""
        return self._halt

    def mode(self) -> Mode | None:
        """As set last, None where it never was."""
        return self._mode

    def set_mode(self, mode: Mode, who: str, at: datetime) -> None:
        """From the next tick on."""
        with self._lock:
            self._mode = mode
            self._note(at, who, "mode", "", mode.value)

    def propose(self, proposal: Proposal) -> None:
        """Keep a proposal; one with the same id is replaced."""
        with self._lock:
            self._proposals[proposal.id] = proposal

    def proposals(self, states: Collection[ProposalState] = ()) -> tuple[Proposal, ...]:
        """Those in one of these states, all where none is named, in order of proposal."""
        with self._lock:
            known = tuple(self._proposals.values())
        return tuple(p for p in known if not states or p.state in states)

    def answer(
        self, proposal_id: str, state: ProposalState, who: str, at: datetime, outcome: str = ""
    ) -> Proposal:
        """Raises SpecError where there is none of that id, or it is no longer open."""
        with self._lock:
            before = self._proposals.get(proposal_id)
            if before is None:
                raise SpecError(
                    f"there is no proposal {proposal_id!r}",
                    hint="see `costopt approve`",
                    code="unknown_proposal",
                )
            if state not in STILL_OPEN.get(before.state, frozenset()):
                raise SpecError(
                    f"proposal {proposal_id!r} is {before.state.value} already",
                    code="already_decided",
                )
            after = replace(before, state=state, answered_by=who, answered_at=at, outcome=outcome)
            self._proposals[proposal_id] = after
            self._note(at, who, state.value, proposal_id, outcome)
            return after

    def changes(self, after: int = 0) -> tuple[tuple[int, AuditEntry], ...]:
        """What people told the daemon, with its number, counted from 1."""
        with self._lock:
            return tuple(enumerate(self._changes[after:], start=after + 1))

    def _known(self, name: str) -> Submission:
        known = self._submissions.get(name)
        if known is None:
            raise SpecError(
                f"there is no job {name!r}", hint="see `costopt list`", code="unknown_job"
            )
        return known

    def _note(self, at: datetime, who: str, what: str, subject: str, detail: str = "") -> None:
        self._changes.append(AuditEntry(at, who, what, subject, detail))
