"""What a person says of a job in a few words, as fields of a job file.

Each function raises ValueError with what it expected.
"""

from __future__ import annotations

import os
import re
import shlex
from datetime import datetime
from pathlib import Path

from costopt.spec.fields import parse_amount, parse_duration_s
from costopt.spec.gpu_text import GPUS, check_gpus
from costopt.spec.job_draft import shell_command
from costopt.spec.moments import INSTANT_PATTERN, LOCAL_PATTERN, moment

EXAMPLE_WORK = "10k steps"
EXAMPLE_TAKES = "2s per step on 1xA100"
UNIT = r"(?P<unit>step|sample|token|task|epoch)s?"
AMOUNT = rf"(?P<amount>[0-9][0-9.,e+]*[kMBT]?) ?{UNIT}"
DURATION = r"(?P<time>[0-9][0-9a-z. ]*?)"
TIMES = (
    re.compile(rf"{DURATION} (?:per|an?|each|for an?|for each) {UNIT} on (?P<gpus>\S+)"),
    re.compile(rf"(?:an?|one|each) {UNIT} takes {DURATION} on (?P<gpus>\S+)"),
)
SPEED = re.compile(rf"{AMOUNT} ?(?:/s|per second|a second) on (?P<gpus>\S+)")


def work_field(text: str) -> str:
    """Return ``10k steps`` as the job file has it."""
    match = re.fullmatch(AMOUNT, text.strip())
    if match is None or not isinstance(parse_amount(match["amount"]), float):
        raise ValueError(
            f"expected how much there is to do, such as {EXAMPLE_WORK} or 2B tokens, got {text!r}"
        )
    return f"{match['amount']} {match['unit']}s"


def takes_field(text: str) -> dict[str, str]:
    """Return ``2s per step on 1xA100``, or a speed, as the job file has it."""
    said = text.strip()
    match = next((found for each in TIMES if (found := each.fullmatch(said))), None)
    if match is not None:
        parse_duration_s(match["time"])
        return {"per": match["unit"], "time": match["time"], "on": _gpus(match["gpus"])}
    speed = SPEED.fullmatch(said)
    if speed is None:
        raise ValueError(
            f"expected how long it takes on which GPUs, such as {EXAMPLE_TAKES} or 55k tokens/s on "
            f"8xH100, got {text!r}"
        )
    amount = parse_amount(speed["amount"])
    if not isinstance(amount, float) or amount <= 0:
        raise ValueError(f"expected a speed above 0, got {speed['amount']!r}")
    return {"per": speed["unit"], "time": f"{1 / amount:.6g}s", "on": _gpus(speed["gpus"])}


def work_and_takes(text: str) -> tuple[str, dict[str, str]]:
    """Return both parts of ``10k steps, 2s per step on 1xA100``."""
    work, comma, takes = text.partition(",")
    if not comma:
        raise ValueError(
            f"expected the work and how long it takes, such as {EXAMPLE_WORK}, {EXAMPLE_TAKES}"
        )
    return check_units(work_field(work), takes_field(takes))


def check_units(work: str, takes: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Return work and time where both count in one unit."""
    unit = work.rpartition(" ")[2]
    if unit != f"{takes['per']}s":
        raise ValueError(f"the work is in {unit}, its time is per {takes['per']}: use one unit")
    return work, takes


def _gpus(text: str) -> str:
    check_gpus(text)
    match = GPUS.fullmatch(text)
    assert match is not None
    return text if match[1] or match[3] else f"1x{text}"


def due_field(text: str, now: datetime) -> tuple[str, str]:
    """Return a deadline as the job file has it, and what was said where that differs.

    A day and an hour without a zone are those of this machine, and become a date.
    """
    said = text.strip()
    local = re.match(LOCAL_PATTERN, said)
    if local is None or local[3]:
        at = moment(said, now)
        is_relative = local is None and not re.match(INSTANT_PATTERN, said)
        if (is_relative and parse_duration_s(said) <= 0) or at <= now:
            raise ValueError(f"expected a time to come, got {text!r}")
        return said, ""
    from zoneinfo import ZoneInfo

    zone = machine_zone()
    at = moment(f"{said} {zone}", now)
    if at <= now:
        raise ValueError(f"expected a time to come, got {text!r}")
    return f"{at.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M} {zone}", said


def machine_zone() -> str:
    """Return the name of this machine's time zone."""
    if name := os.environ.get("TZ", "").lstrip(":"):
        return name
    link = Path("/etc/localtime")
    if not link.exists():
        return "UTC"
    _, found, name = os.path.realpath(link).partition("/zoneinfo/")
    if found:
        return re.sub(r"^(posix|right)/", "", name)
    raise ValueError("the machine's time zone has no name: add one, such as Europe/Berlin")


def run_field(text: str) -> str | list[str]:
    """Return a command as the job file has it: a line, or a script where it needs a shell."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"expected a command, got {text!r}: {error}".lower()) from None
    if not words:
        raise ValueError("expected a command, such as torchrun train.py")
    return shell_command(text.strip())


def check_place(text: str) -> str:
    """Return the place of checkpoints."""
    scheme, colon, rest = text.strip().partition("://")
    if colon and (scheme not in ("s3", "gs", "file") or not rest):
        raise ValueError(f"expected a folder, s3://BUCKET/PATH or gs://BUCKET/PATH, got {text!r}")
    return text.strip()
