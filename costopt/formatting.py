"""Figures as text for people; each name carries the unit of its argument.

An unknown figure is "unknown", never 0; in a table's cell it is a dash.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from costopt.domain.estimate import Estimate

UNKNOWN_TEXT = "unknown"
UNKNOWN_CELL = "–"

NEARLY_ALWAYS = 0.99
"""A probability above which its interval's lower end says more than its value."""

_POOL = re.compile(r"(?<![\w/])[\w.-]+/[\w.-]+/[\w.*-]+/[\w.-]+/\w+(?![\w/])")

HOURS_SHOWN_S = 30 * 86400
"""Durations from here on are whole days."""


def plain_text(value: object) -> str:
    """Return text as it is, numbers without noise, lists with commas; None is a dash."""
    match value:
        case None:
            return UNKNOWN_CELL
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:,.6g}"
        case tuple() | list():
            return ", ".join(plain_text(each) for each in value)
        case datetime():
            return minute_text(value)
    return str(value)


def pluralize(number: int, noun: str) -> str:
    """A number with its noun: "1 node", "3 nodes"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def usd_text(usd: float | None) -> str:
    """Return dollars with cents, and four decimals below one dollar."""
    if usd is None:
        return UNKNOWN_TEXT
    digits = 2 if abs(usd) >= 1 or usd == 0 else 4
    return f"{'-' if usd < 0 else ''}${abs(usd):,.{digits}f}"


def usd_micros_text(usd_micros: float | None) -> str:
    """Return micro-dollars as dollars."""
    return UNKNOWN_TEXT if usd_micros is None else usd_text(usd_micros / 1e6)


def usd_per_hour_text(usd_per_hour: float | None) -> str:
    """Return the price of an hour: "$3.20/h"."""
    return UNKNOWN_TEXT if usd_per_hour is None else f"{usd_text(usd_per_hour)}/h"


def wh_text(wh: float | None) -> str:
    """Return watt-hours, as kilowatt-hours from one on."""
    if wh is None:
        return UNKNOWN_TEXT
    if abs(wh) < 1000:
        return f"{wh:.0f} Wh" if abs(wh) >= 10 else f"{wh:.2g} Wh"
    return f"{wh / 1000:,.1f} kWh"


def kwh_text(kwh: float | None) -> str:
    """Return kilowatt-hours, as watt-hours below one."""
    return wh_text(None if kwh is None else kwh * 1000)


def gco2e_text(gco2e: float | None) -> str:
    """Return grams of CO2 equivalent as grams, kilograms or tonnes."""
    if gco2e is None:
        return UNKNOWN_TEXT
    for unit_g, unit in ((1e6, "t"), (1e3, "kg")):
        if abs(gco2e) >= unit_g * 0.9995:
            return f"{number_text(gco2e / unit_g)} {unit}"
    return f"{number_text(gco2e)} g"


def sci_text(gco2e_per_unit: float | None, unit: str | None) -> str:
    """Return a software carbon intensity with three digits: "2.31 mg per step"."""
    if gco2e_per_unit is None:
        return UNKNOWN_TEXT
    scales = ((1.0, "g"), (1e-3, "mg"), (1e-6, "µg"))
    scale, name = next((each for each in scales if gco2e_per_unit >= each[0]), (1e-9, "ng"))
    return f"{gco2e_per_unit / scale:,.3g} {name} per {(unit or 'unit').removesuffix('s')}"


def seconds_text(seconds: float | None) -> str:
    """Return a duration in its two largest units: "2 d 3 h", "5 h 31 min", "29 min", "45 s"."""
    if seconds is None:
        return UNKNOWN_TEXT
    if seconds < 0:
        return f"-{seconds_text(-seconds)}"
    total = _rounded(seconds)
    if total >= HOURS_SHOWN_S:
        return f"{total / 86400:,.0f} d"
    days, rest = divmod(total, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (left, "s")]
    while len(parts) > 1 and parts[0][0] == 0:
        parts.pop(0)
    shown = [f"{count} {unit}" for count, unit in parts[:2] if count]
    return " ".join(shown) or "0 s"


def _rounded(seconds: float) -> int:
    """Return the seconds, rounded to the smaller of the two units that are shown."""
    for from_s, step_s in ((86400, 3600), (3600, 60)):
        if round(seconds / step_s) * step_s >= from_s:
            return round(seconds / step_s) * step_s
    return round(seconds)


def work_text(amount: float | None, unit: str | None) -> str:
    """Return an amount of work with its unit."""
    if amount is None:
        return UNKNOWN_TEXT
    number = f"{amount:,.0f}" if abs(amount) >= 10 or amount == int(amount) else f"{amount:.2f}"
    return f"{number} {unit or 'units'}"


def number_text(value: float | None) -> str:
    """Return a number with three significant digits, all of them from 1,000 on."""
    if value is None:
        return UNKNOWN_TEXT
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def percent_text(share: float | None) -> str:
    """Return a share as a percentage; 100 % only where it is certain."""
    if share is None:
        return UNKNOWN_TEXT
    return ">99.9 %" if 0.999 <= share < 1 else _percent(share)


def whole_percent_text(share: float | None) -> str:
    """Return a share as a whole percentage; 100 % only where it is certain."""
    if share is None:
        return UNKNOWN_TEXT
    return ">99 %" if 0.995 <= share < 1 else f"{share:.0%}".replace("%", " %")


def signed_percent_text(share: float | None) -> str:
    """Return a change as a percentage with its sign: "−7.2 %", "+0.0 %"."""
    if share is None:
        return UNKNOWN_TEXT
    return f"{share:+.1%}".replace("%", " %").replace("-", "−")


def probability_text(estimate: Estimate | None) -> str:
    """Return a probability as a percentage: "97.3 %".

    Where every run or none of a simulation hit, or nearly so, it is the 95 % bound, the end of the
    90 % interval: ">98.5 %", "<1.5 %". 0 and 100 % only where they are certain.
    """
    if estimate is None:
        return UNKNOWN_TEXT
    if estimate.low == estimate.high:
        return _percent(estimate.value)
    if estimate.high >= 1 or estimate.value >= NEARLY_ALWAYS:
        return f">{_percent(math.floor(estimate.low * 1000) / 1000)}"
    if estimate.low <= 0 or estimate.value <= 1 - NEARLY_ALWAYS:
        return f"<{_percent(math.ceil(estimate.high * 1000) / 1000)}"
    return _percent(estimate.value)


def count_text(hits: int, runs: int) -> str:
    """Return how many of some runs hit: "2 of 40".

    Where none or all did, the 95 % bound of the probability follows: "0 of 40 (<7.3 %)".
    """
    text = f"{hits} of {runs}"
    if 0 < hits < runs or runs < 1:
        return text
    return f"{text} ({probability_text(Estimate.of_share(hits, runs, 'runs'))})"


def _percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %")


def relative_to_baseline(saved_share: float | None) -> str:
    """Return how a figure compares with its baseline: "32 % below", "4 % above", "equal to"."""
    if saved_share is None:
        return UNKNOWN_TEXT
    rounded = round(saved_share * 100)
    if rounded == 0:
        return "equal to"
    return f"{abs(rounded)} % {'below' if rounded > 0 else 'above'}"


def second_text(at: datetime | str | None) -> str:
    """Return a time, which may be text in ISO 8601, in UTC, to the second."""
    return UNKNOWN_TEXT if at is None else f"{_instant(at):%Y-%m-%d %H:%M:%SZ}"


def minute_text(at: datetime | str | None) -> str:
    """Return a time, which may be text in ISO 8601, in UTC, to the minute."""
    return UNKNOWN_TEXT if at is None else f"{_instant(at):%Y-%m-%d %H:%MZ}"


def _instant(at: datetime | str) -> datetime:
    return (datetime.fromisoformat(at) if isinstance(at, str) else at).astimezone(UTC)


def choice_lines(choice: str) -> str:
    """Return a decision such as "2 × POOL + 1 × POOL" with each pool on a line of its own."""
    return pools_text(choice).replace(" + ", " +\n")


def pool_lines(pools: Sequence[str]) -> str:
    """Return each pool on a line of its own."""
    return ",\n".join(map(pool_text, pools))


def pools_text(text: str) -> str:
    """Return a sentence with the names of its pools as ``pool_text`` shows them."""
    return _POOL.sub(lambda name: pool_text(name[0]), text)


def pool_text(pool: object) -> str:
    """Return a pool, or its name, without its region where the zone's name begins with it."""
    parts = str(pool).split("/")
    if len(parts) == 5 and parts[2].startswith(parts[1]):
        del parts[1]
    return "/".join(parts)
