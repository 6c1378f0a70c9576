"""What a person says of a job in a few words, as fields of a job file.

Each function raises ValueError with what it expected.
"""

from __future__ import annotations

import re
import shlex
from datetime import datetime

from costopt.domain.job import WorkAmount
from costopt.spec.fields import parse_duration_s
from costopt.spec.gpu_text import GPUS, check_gpus
from costopt.spec.job_draft import shell_command
from costopt.spec.moments import has_no_zone, moment
from costopt.spec.takes_section import PER, WORK, TakesSection, parse_work

EXAMPLE_WORK = "10 epochs"
EXAMPLE_TAKES = "40m per epoch on 1xA100"
DURATION = r"(?P<time>[0-9][0-9a-z. ]*?)"
TIMES = (
    re.compile(rf"{DURATION}(?: (?:per|an?|each|for an?|for each) (?P<per>.+?))? on (?P<gpus>\S+)"),
    re.compile(rf"(?:(?:an?|one|each) )?(?P<per>.+?) takes? {DURATION} on (?P<gpus>\S+)"),
)
SPEED = re.compile(
    r"(?P<amount>\S*[1-9]\S*) (?P<unit>[a-z]+) ?(?:/s|per second|a second) on (?P<gpus>\S+)"
)
WHOLE_JOB = "job"


def work_field(text: str) -> str:
    """Return ``10 epochs`` as the job file has it."""
    said = text.strip()
    if WORK.match(said) is None:
        raise ValueError(
            f"expected how much there is to do, such as {EXAMPLE_WORK} or 2B tokens, got {text!r}"
        )
    return said


def takes_field(text: str) -> dict[str, str]:
    """Return ``40m per epoch on 1xA100``, ``6h on 8xH100`` of the whole job, or a speed, as the
    job file has it."""
    said = text.strip()
    speed = SPEED.fullmatch(said)
    match = next((found for each in TIMES if (found := each.fullmatch(said))), None)
    if speed is not None:
        per, time, gpus = f"{speed['amount']} {speed['unit']}", "1s", speed["gpus"]
    elif match is not None:
        per, time, gpus = match["per"] or WHOLE_JOB, match["time"], match["gpus"]
        if parse_duration_s(time) <= 0:
            raise ValueError(f"expected a time above 0, got {time!r}")
    if (speed is None and match is None) or PER.match(per) is None:
        raise ValueError(
            f"expected how long it takes on which GPUs, such as {EXAMPLE_TAKES} or 6h on 8xH100, "
            f"got {text!r}"
        )
    return {"per": per, "time": time, "on": _gpus(gpus)}


def work_and_takes(text: str) -> dict[str, object]:
    """Return the fields of ``10 epochs, 40m per epoch on 1xA100``, or of the time alone of all of
    the job."""
    work, comma, takes = text.partition(",")
    return speed_fields(work if comma else "", takes if comma else work)


def speed_fields(work: str, takes: str) -> dict[str, object]:
    """Return the fields of the work and of how long it takes; without work that of all of it."""
    found = takes_field(takes)
    if work:
        said = work_field(work)
        try:
            counted = parse_work(said)
            assert isinstance(counted, dict)
            TakesSection.model_validate(found).sample(WorkAmount(**counted))
        except ValueError as error:
            raise ValueError(f"the time {error}") from None
        return {"work": said, "takes": found}
    if found["per"] == WHOLE_JOB:
        return {"takes": found}
    raise ValueError(
        f"expected how much there is to do as well, such as {EXAMPLE_WORK}, {EXAMPLE_TAKES}"
    )


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
    at = moment(said, now)
    if at <= now:
        raise ValueError(f"expected a time to come, got {text!r}")
    if not has_no_zone(said):
        return said, ""
    return at.astimezone().isoformat(timespec="minutes"), said


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
