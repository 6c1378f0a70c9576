"""What the whole job would cost on demand, at the speed that it turned out to have."""

from __future__ import annotations

from dataclasses import dataclass

from costopt.domain.events import JobSubmitted


@dataclass(frozen=True, slots=True)
class Baseline:
    """The job on one on-demand pool without interruptions; None is unknown."""

    pool: str | None = None
    usd_micros: int | None = None
    wh: float | None = None
    gco2e: float | None = None


def baseline_at(terms: JobSubmitted | None, speed_ratio: float | None) -> Baseline:
    """The baseline of ``terms`` where the job trains ``speed_ratio`` times as fast as declared;
    as declared where that is None. The start-up takes as long at any speed, and the pool stays
    the one that was cheapest at the declared speed."""
    if terms is None:
        return Baseline()
    if speed_ratio is None or speed_ratio == 1.0:
        return Baseline(
            terms.baseline_pool,
            terms.baseline_usd_micros,
            terms.baseline_wh,
            terms.baseline_gco2e,
        )
    usd_micros = _scaled(terms.baseline_usd_micros, terms.baseline_startup_usd_micros, speed_ratio)
    wh = _scaled(terms.baseline_wh, terms.baseline_startup_wh, speed_ratio)
    gco2e = terms.baseline_gco2e
    if gco2e is not None and wh is not None and terms.baseline_wh:
        gco2e *= wh / terms.baseline_wh
    return Baseline(
        terms.baseline_pool, None if usd_micros is None else round(usd_micros), wh, gco2e
    )


def _scaled(whole: float | None, startup: float | None, speed_ratio: float) -> float | None:
    """Return the whole with all but the start-up scaled, None where either is unknown."""
    if whole is None or startup is None:
        return None
    return startup + (whole - startup) / speed_ratio
