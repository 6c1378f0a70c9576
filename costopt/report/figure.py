"""Numbers as a reader sees them. An unknown figure reads "unknown", never 0."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from costopt.domain.estimate import Estimate

UNKNOWN_TEXT = "unknown"

NEARLY_ALWAYS = 0.99
"""A probability above which its interval's lower end says more than its value."""


def usd_micros_text(micros: float | None) -> str:
    """Micro-dollars as dollars: cents, and finer below a dollar."""
    if micros is None:
        return UNKNOWN_TEXT
    dollars = abs(micros) / 1e6
    digits = 2 if dollars >= 1 or dollars == 0 else 4
    return f"{'-' if micros < 0 else ''}${dollars:,.{digits}f}"


def energy_text(wh: float | None) -> str:
    """Watt-hours, as kilowatt-hours from one on."""
    if wh is None:
        return UNKNOWN_TEXT
    if abs(wh) < 1000:
        return f"{wh:.0f} Wh" if abs(wh) >= 10 else f"{wh:.2g} Wh"
    return f"{wh / 1000:,.1f} kWh"


def kilowatt_hours(kwh: float | None) -> str:
    """The same of kilowatt-hours."""
    return energy_text(None if kwh is None else kwh * 1000)


def gco2e_text(gco2e: float | None) -> str:
    """Grams of CO2 equivalent, as kilograms from one on."""
    if gco2e is None:
        return UNKNOWN_TEXT
    return f"{gco2e / 1000:,.1f} kg" if abs(gco2e) >= 1000 else f"{gco2e:.0f} g"


def long_duration_text(seconds: float | None) -> str:
    """Two units at most: "2 d 3 h", "5 h 31 min", "29 min", "45 s"."""
    if seconds is None:
        return UNKNOWN_TEXT
    total = round(abs(seconds))
    if total < 90:
        return f"{total} s"
    minutes = round(total / 60)
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    parts = [(days, "d"), (hours, "h"), (minutes, "min")]
    while parts[0][0] == 0:
        parts.pop(0)
    return " ".join(f"{count} {name}" for count, name in parts[:2] if count)


def work_text(amount: float | None, unit: str | None) -> str:
    """An amount of work with its unit."""
    if amount is None:
        return UNKNOWN_TEXT
    number = f"{amount:,.0f}" if abs(amount) >= 10 or amount == int(amount) else f"{amount:.2f}"
    return f"{number} {unit or 'units'}"


def whole_percent_text(value: float | None) -> str:
    """A share as a whole percentage."""
    return UNKNOWN_TEXT if value is None else f"{value:.0%}".replace("%", " %")


def probability(estimate: Estimate) -> str:
    """As a percentage: "97.3 %". Where every run or none of a simulation hit, or nearly so, the
    end of the 90 % interval: ">98.6 %", "<1.4 %". 0 and 100 % only where they are certain.
    """
    if estimate.low == estimate.high:
        return _percent(estimate.value)
    if estimate.high >= 1 or estimate.value >= NEARLY_ALWAYS:
        return f">{_percent(math.floor(estimate.low * 1000) / 1000)}"
    if estimate.low <= 0 or estimate.value <= 1 - NEARLY_ALWAYS:
        return f"<{_percent(math.ceil(estimate.high * 1000) / 1000)}"
    return _percent(estimate.value)


def _percent(value: float) -> str:
    return f"{value:.1%}".replace("%", " %")


def time_text(at: datetime | None) -> str:
    """Date and time in UTC, to the second."""
    return UNKNOWN_TEXT if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def relative_to_baseline(saved_share: float | None) -> str:
    """How a figure stands to its baseline: "32 % below", "4 % above", "equal to"."""
    if saved_share is None:
        return UNKNOWN_TEXT
    rounded = round(saved_share * 100)
    if rounded == 0:
        return "equal to"
    return f"{abs(rounded)} % {'below' if rounded > 0 else 'above'}"
