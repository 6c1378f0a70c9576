"""How many jobs a tenant may have that have not ended."""

from __future__ import annotations

from costopt.daemon.shared_state import SharedState
from costopt.domain.account import Account
from costopt.domain.control import DesiredState, Registry
from costopt.domain.errors import GuardTrippedError
from costopt.ledger.job_query import ENDED


def check_open_jobs(account: Account, registry: Registry, board: SharedState, name: str) -> None:
    """Raise GuardTrippedError if a tenant of this name may not submit another job now."""
    tenant = account.tenants.get(name)
    if tenant is None or tenant.max_open_jobs is None:
        return
    states = [state for state in DesiredState if state is not DesiredState.CANCELLED]
    seen = board.snapshot.summaries
    names = [submission.name for submission in registry.submissions(states, name)]
    open_jobs = sum(job not in seen or seen[job].state not in ENDED for job in names)
    if open_jobs >= tenant.max_open_jobs:
        raise GuardTrippedError(
            f"tenant {name!r} has {open_jobs} open jobs, and may have {tenant.max_open_jobs}",
            hint="cancel one with costopt cancel, or wait until one has ended",
            code="max_open_jobs",
        )
