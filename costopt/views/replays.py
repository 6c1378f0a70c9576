"""The outcome of replays of a planned job, as a sentence and for programs."""

from __future__ import annotations

from collections.abc import Iterator

from costopt.domain.job import Job
from costopt.formatting import number_text, seconds_text, usd_text
from costopt.planning.forecast.replays import Replays
from costopt.render.table import Row, records


def replays_row(made: Replays | None) -> Row | None:
    """Return the figures of the replays, None where none were requested."""
    if made is None:
        return None
    (own,) = records([made], "requested done limit_s source in_time failure")
    (found,) = records([made.forecast], "usd_mean usd_error usd_p95 kwh gco2e")
    return {**own, **found}


def replays_notes(made: Replays | None, job: Job) -> Iterator[str]:
    """Yield the outcome of the replays, and where some were not done or the strategy failed."""
    if made is None:
        return
    limit = seconds_text(made.limit_s)
    if made.forecast is None:
        yield f"Verified by none of {made.requested} {made.source}: none was done in {limit}."
        return
    found = made.forecast
    missing = made.requested - made.done
    cut = f"; {missing} more were not done in {limit}" if missing else ""
    spread = f" ± {usd_text(found.usd_error)}" if made.done > 1 else ""
    energy = "" if found.kwh is None else f", {number_text(found.kwh)} kWh"
    in_time = "" if job.deadline_at is None else f", {made.in_time} of {made.done} in time"
    yield (
        f"Verified by {made.done} {made.source}{cut}: mean {usd_text(found.usd_mean)}{spread} "
        f"(P95 {usd_text(found.usd_p95)}){energy}{in_time}."
    )
    if made.failure:
        yield f"The strategy failed in them, so that the shield decided: {made.failure}"
