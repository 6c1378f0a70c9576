"""Whether the catalogue knows a GPU model that a file names."""

from __future__ import annotations

from functools import cache

from costopt.spec.nearest import did_you_mean


def gpu_model_error(requested: str) -> str | None:
    """Why ``requested`` names no GPU of the catalogue, or None where it does.

    A request matches a model or a leading run of its parts, as in ``Gpu.answers_to``.
    """
    models = _models()
    asked = requested.upper().split("-")
    if any(model.upper().split("-")[: len(asked)] == asked for model in models):
        return None
    families = sorted({model.split("-")[0] for model in models})
    near = did_you_mean(requested, (*families, *models))
    known = near or f"; it holds {', '.join(families)}"
    return f"the GPU model {requested!r} is not in the catalogue{known}"


@cache
def _models() -> tuple[str, ...]:
    from costopt.catalog import load_catalog

    return tuple(load_catalog().gpu_models())
