"""Which places in object stores a job may name: those of its tenant."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from costopt.controller.account_site import CHECKPOINTS
from costopt.domain.account import Account
from costopt.domain.errors import StoreError
from costopt.domain.job import Job
from costopt.spec.document import Document
from costopt.spec.problem import SpecFileError, SpecProblem
from costopt.store.address import REMOTE_SCHEMES, StoreAddress, join_uri


def check_storage_locations(job: Job, document: Document, account: Account) -> None:
    """Refuse a job of an account with tenants whose checkpoints or data lie in no place of its own.

    Those are below its tenant's prefixes, and its own folder for checkpoints in the account's
    store. Raises SpecFileError with every other place that ``document``, the job's file, names.
    """
    problems = tuple(_problems(job, document, account)) if account.tenants else ()
    if problems:
        raise SpecFileError(problems, hint=_hint(job, account))


def _problems(job: Job, document: Document, account: Account) -> Iterator[SpecProblem]:
    own = _own(job, account)
    named = {"checkpoint": job.checkpoint.uri, "data": job.data.uri if job.data else ""}
    for section, address in named.items():
        if urlsplit(address).scheme in REMOTE_SCHEMES:
            refusal = _refusal(address, own, job.tenant)
            if refusal is not None:
                yield document.problem((section, "uri"), refusal, code="outside_prefixes")


def _own(job: Job, account: Account) -> tuple[StoreAddress, ...]:
    addresses = list(_prefixes(job, account))
    if account.store is not None:
        addresses.append(join_uri(account.store, f"{CHECKPOINTS}/{job.name}"))
    return tuple(StoreAddress.parse(address) for address in addresses)


def _refusal(address: str, own: tuple[StoreAddress, ...], tenant: str) -> str | None:
    try:
        place = StoreAddress.parse(address)
    except StoreError as error:
        return error.message
    if any(each.holds(place) for each in own):
        return None
    return f"{address!r} is in no place of tenant {tenant}"


def _hint(job: Job, account: Account) -> str:
    prefixes = _prefixes(job, account)
    if prefixes:
        return f"use a place below {' or '.join(prefixes)}"
    return (
        f"add prefixes: to tenant {job.tenant} in the account file; checkpoints of a job whose "
        "checkpoint.uri is a folder go to the account's store"
    )


def _prefixes(job: Job, account: Account) -> tuple[str, ...]:
    tenant = account.tenants.get(job.tenant)
    return () if tenant is None else tenant.prefixes
