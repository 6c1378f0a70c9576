"""What the daemon knows besides the ledger: jobs handed in, its mode, a halt, proposals."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Protocol

from costopt.domain.control import AuditEntry, Halt, Mode, Proposal, ProposalState
from costopt.domain.submission import DesiredState, Submission


class Registry(Protocol):
    """Safe to share between threads; what is written is durable on return.

    Every method may raise LedgerError. What a person changes is kept as a Change as well.
    """

    def submit(self, submission: Submission) -> None:
        """Take a job in. Raises SpecError where the name is taken."""
        ...

    def submission(self, name: str) -> Submission | None:
        """One job, or None."""
        ...

    def submissions(
        self, desired_states: Collection[DesiredState] = (), tenant: str | None = None
    ) -> tuple[Submission, ...]:
        """Return those with one of these desired states, all if none is given, in the order of
        submission; those of one tenant if one is given."""
        ...

    def set_desired_state(
        self, name: str, desired_state: DesiredState, who: str, at: datetime
    ) -> Submission:
        """Raises SpecError for an unknown job, and for a cancelled one that is to run again."""
        ...

    def set_priority(self, name: str, priority: int, who: str, at: datetime) -> Submission:
        """Raises SpecError for an unknown job, and for a cancelled one."""
        ...

    def halt(self, reason: str, who: str, at: datetime) -> Halt:
        """Stop all launches; of a halt that stands this is the reason from now on.

        The same person's same reason again is no change.
        """
        ...

    def unhalt(self, who: str, at: datetime) -> None:
        """Let launches happen again; without a halt nothing happens."""
        ...

    def halted(self) -> Halt | None:
        """The halt that stands."""
        ...

    def mode(self) -> Mode | None:
        """As set last, None where it never was."""
        ...

    def set_mode(self, mode: Mode, who: str, at: datetime) -> None:
        """From the next tick on."""
        ...

    def propose(self, proposal: Proposal) -> None:
        """Keep a proposal; one with the same id is replaced."""
        ...

    def proposals(self, states: Collection[ProposalState] = ()) -> tuple[Proposal, ...]:
        """Those in one of these states, all where none is named, in order of proposal."""
        ...

    def answer(
        self, proposal_id: str, state: ProposalState, who: str, at: datetime, outcome: str = ""
    ) -> Proposal:
        """Raises SpecError where there is none of that id, or it is no longer open.

        An approved one may still become executed, refused or withdrawn.
        """
        ...

    def changes(self, after: int = 0) -> tuple[tuple[int, AuditEntry], ...]:
        """What people told the daemon, with its number, counted from 1."""
        ...
