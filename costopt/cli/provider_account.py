"""Connects one provider of the account file, for commands about an account itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click

from costopt.cli.options import words
from costopt.domain.account import Account
from costopt.provider.base import Capability, Provider
from costopt.provider.options import OptionModel

ACCOUNT_FILE = Path("account.yaml")
"""The account file that `costopt setup` writes, and that is found where none is named."""
REFUSALS: Mapping[Capability, str] = {
    Capability.ACCOUNT_CHECKS: "the account file names no account with provider {name!r}",
    Capability.ACCOUNT_SETUP: "costopt sets up no account with provider {name!r}",
}


def nearest_account(named: str | None) -> str | None:
    """Return the account file that is named, else account.yaml of this folder, which is noted."""
    if named is not None or not ACCOUNT_FILE.is_file():
        return named
    click.echo(f"note: account file {ACCOUNT_FILE} of this folder", err=True)
    return str(ACCOUNT_FILE)


@contextmanager
def connected_provider(
    name: str, regions: str | None, account: Account, capability: Capability
) -> Iterator[Provider]:
    """Connect one provider, in these regions or those of the account file.

    Raise ProviderError, MissingExtraError, UsageError where no region is named or the provider
    cannot do what is asked.
    """
    from costopt.catalog.site_machines import account_catalog
    from costopt.controller.site import connect_provider, find_adapter
    from costopt.engine.loop import WallClock
    from costopt.spec.account_file import options_model

    model = options_model(find_adapter(name))
    options = {"machines": account_catalog(account), **account.providers.get(name, {})}
    if not options.get("cluster"):
        if model is not None and "regions" not in model.model_fields:
            raise click.UsageError(
                f"provider {name} is a cluster: give --account FILE, with cluster: NAME and what "
                f"else describes it under providers: {name}:"
            )
        asked = None if regions is None else words(regions)
        options["regions"] = asked or options.get("regions") or _usual_region(name, model, options)
    elif regions is not None:
        raise click.UsageError(f"provider {name} of the account file is a cluster, without regions")
    provider = connect_provider(name, WallClock(), options)
    try:
        if capability not in provider.capabilities():
            raise click.UsageError(REFUSALS[capability].format(name=name))
        yield provider
    finally:
        provider.close()


def _usual_region(
    provider: str, model: type[OptionModel] | None, options: Mapping[str, object]
) -> tuple[str, ...]:
    """Return the region of the provider's own variables, else of its tools' configuration."""
    from costopt.catalog import find_traits

    for variable in find_traits(provider).region_variables:
        region = os.environ.get(variable)
        if region:
            return (region,)
    configured = None if model is None else model.usual_region(options)
    if configured is not None:
        return (configured,)
    raise click.UsageError(
        f"which regions of {provider}? Give --regions, or --account FILE that names the provider "
        "with its regions"
    )
