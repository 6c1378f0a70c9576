"""Figures as people read them; unknown is a dash."""

from __future__ import annotations

from datetime import UTC, datetime

from costopt.domain.estimate import Estimate
from costopt.report import figure

UNKNOWN = "–"


def plain_text(value: object) -> str:
    """Text as it is, numbers without noise, lists with commas."""
    match value:
        case None:
            return UNKNOWN
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:,.6g}"
        case tuple() | list():
            return ", ".join(plain_text(each) for each in value)
        case datetime():
            return minute_text(value)
    return str(value)


def usd_text(value: float | None) -> str:
    """Dollars: cents where they matter."""
    if value is None:
        return UNKNOWN
    if value and abs(value) < 1:
        return f"${value:.4f}"
    return f"${value:,.2f}" if abs(value) < 10_000 else f"${value:,.0f}"


def number_text(value: float | None) -> str:
    """Three or four significant digits."""
    if value is None:
        return UNKNOWN
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def percent_text(value: float | None) -> str:
    """A share as a percentage; 100 % only where it is certain."""
    if value is None:
        return UNKNOWN
    if 0.999 <= value < 1:
        return ">99.9 %"
    return f"{value:.1%}".replace("%", " %")


def probability(estimate: Estimate | None) -> str:
    """A probability as a percentage, or an end of its interval near 0 and 1."""
    return UNKNOWN if estimate is None else figure.probability(estimate)


def duration_text(seconds: float | None) -> str:
    """A duration in its two largest units."""
    if seconds is None:
        return UNKNOWN
    if seconds < 0:
        return f"−{duration_text(-seconds)}"
    total = round(seconds)
    days, rest = divmod(total, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes:02}m"
    return f"{minutes}m {left:02}s" if minutes else f"{left}s"


def age_text(seconds: float | None) -> str:
    """How old a figure is: days alone once there are some."""
    if seconds is not None and seconds >= 2 * 86400:
        return f"{seconds / 86400:,.0f} days"
    return duration_text(seconds)


def minute_text(when: datetime | None) -> str:
    """A time in UTC, to the minute."""
    return UNKNOWN if when is None else when.astimezone(UTC).strftime("%Y-%m-%d %H:%MZ")


def iso_minute_text(text: str | None) -> str:
    """A time in ISO 8601, as ``minute_text`` shows it."""
    return UNKNOWN if text is None else minute_text(datetime.fromisoformat(text))


def pool_text(text: str) -> str:
    """A pool without its region where the zone's name begins with it."""
    parts = text.split("/")
    if len(parts) == 5 and parts[2].startswith(parts[1]):
        del parts[1]
    return "/".join(parts)


def co2e_text(grams: float | None) -> str:
    """Emissions in grams, kilograms or tonnes."""
    if grams is None:
        return UNKNOWN
    for unit_g, unit in ((1e6, "t"), (1e3, "kg")):
        if grams >= unit_g:
            return f"{grams / unit_g:.3g} {unit}"
    return f"{grams:.3g} g"
