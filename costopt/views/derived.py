"""Figures that a job file leaves to its model, as sentences and as rows for programs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from costopt.domain.job import Job
from costopt.domain.model_card import DerivedFigure
from costopt.formatting import number_text
from costopt.render.table import Row

ESTIMATE_FIELDS = ("value", "low", "high", "basis", "source")


def derived_notes(job: Job) -> Iterator[str]:
    """Yield how times were read, then a line for the figures of each source: field, value,
    interval, basis and source."""
    for note in job.time_notes:
        yield f"{note[:1].upper()}{note[1:]}."
    if job.derived:
        yield "Derived, where the file says nothing else:"
    for source, alike in groupby(job.derived, key=lambda each: each.estimate.source):
        figures = list(alike)
        basis = figures[0].estimate.basis.value
        yield f"  {'; '.join(map(_figure, figures))} ({basis}: {source})"


def _figure(each: DerivedFigure) -> str:
    known = each.estimate
    ends = f", {_text(known.low)} to {_text(known.high)}" if known.low < known.high else ""
    return f"{each.field}: {_text(known.value)} {each.unit}".rstrip() + ends


def derived_rows(job: Job) -> list[Row]:
    """Return the figures for JSON."""
    return [
        {"field": each.field, "unit": each.unit}
        | {name: getattr(each.estimate, name) for name in ESTIMATE_FIELDS}
        for each in job.derived
    ]


def _text(value: float) -> str:
    return f"{value:.3g}" if value >= 1e6 else number_text(value)
