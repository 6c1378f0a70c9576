"""Whether the catalogue knows a region that a file names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from costopt.spec.nearest import did_you_mean


def unknown_region(requested: str) -> str | None:
    """Why "provider/region" names no region of the catalogue, or None where it may.

    A provider of which the catalogue holds no region is not judged: any adapter may bring one.
    """
    provider, _, region = requested.partition("/")
    known = _regions().get(provider)
    if known is None or region in known:
        return None
    near = did_you_mean(requested, [f"{provider}/{name}" for name in known])
    return (
        f"the region {requested!r} is not in the catalogue{near}; "
        "costopt catalog --regions lists them all"
    )


@cache
def _regions() -> Mapping[str, frozenset[str]]:
    from costopt.catalog import load_catalog

    regions = load_catalog().regions()
    providers = {region.provider for region in regions}
    return {
        provider: frozenset(region.name for region in regions if region.provider == provider)
        for provider in providers
    }
