"""The account of one provider, as `costopt doctor PROVIDER` looks at it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

import click

from costopt.cli.options import words
from costopt.domain.account import Account
from costopt.planning.request import load_account
from costopt.provider.base import Capability, Check, Provider


def account_checks(provider: str, regions: str | None, account_file: str | None) -> list[Check]:
    """What is found. Raises ProviderError, MissingExtraError, SpecError, UsageError."""
    account = load_account(account_file)
    with _doctor(provider, regions, account) as doctor:
        return list(doctor.checks(account.owner, account.store))


def access_policies(provider: str, regions: str | None, account_file: str | None) -> str:
    """The least that the provider's roles need, as JSON. Raises as ``account_checks`` does."""
    account = load_account(account_file)
    with _doctor(provider, regions, account) as doctor:
        return json.dumps(doctor.access_policies(account.owner, account.store), indent=2)


@contextmanager
def _doctor(name: str, regions: str | None, account: Account) -> Iterator[Provider]:
    from costopt.catalog import load_catalog
    from costopt.controller.site import connect_provider, find_adapter
    from costopt.engine.clock import WallClock

    find_adapter(name)
    options = {"machines": load_catalog(), **account.providers.get(name, {})}
    asked = words(regions) if regions is not None else options.get("regions") or _usual_region(name)
    provider = connect_provider(name, WallClock(), {**options, "regions": asked})
    try:
        if Capability.ACCOUNT_CHECKS not in provider.capabilities():
            raise click.UsageError(f"there is no account to look at with provider {name!r}")
        yield provider
    finally:
        provider.close()


def _usual_region(provider: str) -> tuple[str, ...]:
    from costopt.catalog import find_traits

    for variable in find_traits(provider).region_variables:
        region = os.environ.get(variable)
        if region:
            return (region,)
    raise click.UsageError(
        f"which regions of {provider}? Give --regions, or --account FILE that names the provider "
        "with its regions"
    )
