"""The names of GPU models, regions and providers in files, checked against the catalog."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache

from costopt.spec.fields import did_you_mean

UNKNOWN_NAME = "unknown_name"
DUPLICATE = "duplicate"


def gpu_model_error(requested: str) -> str | None:
    """Why ``requested`` names no GPU of the catalogue, or None where it does.

    A request matches a model or a leading run of its parts, as in ``Gpu.answers_to``.
    """
    models = gpu_models()
    asked = requested.upper().split("-")
    if any(model.upper().split("-")[: len(asked)] == asked for model in models):
        return None
    families = sorted({model.split("-")[0] for model in models})
    near = did_you_mean(requested, (*families, *models))
    known = near or f"; it holds {', '.join(families)}"
    return f"the GPU model {requested!r} is not in the catalogue{known}"


@cache
def gpu_models() -> tuple[str, ...]:
    """The GPU models of the catalogue."""
    from costopt.catalog import load_catalog

    return tuple(load_catalog().gpu_models())


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


def misspelt_region(requested: str, providers: Collection[str] = ()) -> str | None:
    """Why a region without its provider is probably misspelt, or None.

    A name that resembles no region of the catalogue may be that of another adapter or a recorded
    market; one of ``providers`` alone, if any are given, is judged as ``unknown_region`` does.
    """
    judged = [name for name in providers if name in _regions()]
    known = sorted({region for name in judged or _regions() for region in _regions()[name]})
    if requested in known:
        return None
    near = did_you_mean(requested, known)
    if not near and not (providers and len(judged) == len(providers)):
        return None
    return f"no region {requested!r} is in the catalogue{near}"


def misspelt_provider(requested: str) -> str | None:
    """Why the name of a provider is probably misspelt, or None where it is or may be one."""
    from importlib.metadata import entry_points

    known = {*_regions(), *(entry.name for entry in entry_points(group="costopt.providers"))}
    near = "" if requested in known else did_you_mean(requested, sorted(known))
    return f"no provider is named {requested!r}{near}" if near else None


@cache
def _regions() -> Mapping[str, frozenset[str]]:
    from costopt.catalog import load_catalog

    regions = load_catalog().regions()
    providers = {region.provider for region in regions}
    return {
        provider: frozenset(region.name for region in regions if region.provider == provider)
        for provider in providers
    }
