"""The options of the providers in an account file, checked by their adapters' own models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from costopt.provider.options import OptionModel
from costopt.spec.document import Document
from costopt.spec.nearest import did_you_mean
from costopt.spec.problem import VALUE_ERROR, SpecProblem

GROUP = "costopt.providers"
"""The entry points of adapters; none is imported by name."""
MODEL = "OPTIONS"
SECTION = "providers"


def provider_problems(
    document: Document, providers: Mapping[str, Mapping[str, Any]]
) -> Iterator[SpecProblem]:
    """What is wrong with the options of each provider, with its place.

    An adapter that is not installed, cannot be imported or has no model is not checked here.
    """
    installed = {entry.name: entry for entry in entry_points(group=GROUP)}
    for name, options in providers.items():
        model = _model(installed[name]) if name in installed else None
        if model is not None:
            yield from _problems(model, document, name, options)


def _problems(
    model: type[OptionModel], document: Document, name: str, options: Mapping[str, Any]
) -> Iterator[SpecProblem]:
    known = model.of_files()
    for problem in model.problems(options):
        message = problem.message
        if problem.is_unknown and len(problem.at) == 1:
            near = did_you_mean(str(problem.at[0]), known)
            message = f"unknown key{near}" if near else f"unknown key; allowed: {', '.join(known)}"
        at = (SECTION, name, *problem.at)
        code = "extra_forbidden" if problem.is_unknown else VALUE_ERROR
        yield document.problem(at, message, on_key=problem.is_unknown, code=code)


def _model(entry: EntryPoint) -> type[OptionModel] | None:
    try:
        model = getattr(import_module(entry.module), MODEL, None)
    except ImportError:
        return None
    return model if isinstance(model, type) and issubclass(model, OptionModel) else None
