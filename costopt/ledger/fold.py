"""Accounts from a ledger: all of its events, folded in order."""

from __future__ import annotations

from costopt.domain.ports import Ledger
from costopt.ledger.job_account import JobAccount


def accounts(ledger: Ledger) -> dict[str, JobAccount]:
    """Every job's account, in the order of their first event. Raises LedgerError."""
    by_job: dict[str, JobAccount] = {}
    for recorded in ledger.events():
        job = recorded.event.job
        by_job.setdefault(job, JobAccount(job)).apply(recorded.event)
    return by_job


def account_of(ledger: Ledger, job: str) -> JobAccount:
    """One job's account; a job without events has an empty one. Raises LedgerError."""
    account = JobAccount(job)
    for recorded in ledger.events(job):
        account.apply(recorded.event)
    return account
