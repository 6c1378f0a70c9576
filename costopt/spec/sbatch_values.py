"""The values of sbatch options in Slurm's own forms: times, sizes, arrays, GPUs.

Every function raises ValueError with what it expects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from costopt.spec.array_section import MAX_TASKS
from costopt.spec.catalog_names import gpu_model_error, gpu_models

_MIB = {"": 1, "K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}
_VENDOR = re.compile(r"^(?:nvidia|tesla|gpu|geforce)[-_]", re.IGNORECASE)
_DAY_FORMS = ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d")
_CLOCK_FORMS = ("%H:%M:%S", "%H:%M", "%I:%M%p")
_UNITS = {"second": "s", "minute": "m", "hour": "h", "day": "d", "week": "w"}


def limit_s(text: str) -> float:
    """Return a time limit in seconds: MIN, MIN:S, H:MIN:S, D-H, D-H:MIN or D-H:MIN:S."""
    if not re.fullmatch(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}", text):
        raise ValueError("expected a time such as 90, 12:00:00 or 1-12")
    days, dash, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if not dash and len(parts) < 3:
        parts = [0, *parts]
    hours, minutes, seconds = (*parts, 0, 0)[:3]
    total_s = int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds
    if total_s == 0:
        raise ValueError("no limit says nothing of how long the job takes: expected a time")
    return float(total_s)


def to_moment(text: str, now: datetime) -> str:
    """Return a time of ``--deadline`` or ``--begin`` as a job file has it: UTC, or a duration.

    Times have this machine's zone; one of the day alone is the next such time.
    """
    ahead = re.fullmatch(r"now(?:\+(\d+)([a-z]*))?", text)
    if ahead is not None:
        unit = (ahead[2] or "seconds").removesuffix("s")
        units = [_UNITS[name] for name in _UNITS if unit and name.startswith(unit)]
        if len(units) == 1:
            return f"{ahead[1] or 0}{units[0]}"
    local = now.astimezone()
    for form in (*_DAY_FORMS, *_CLOCK_FORMS):
        try:
            at = datetime.strptime(text.upper(), form)  # noqa: DTZ007 - Slurm's times have no zone
        except ValueError:
            continue
        if form in _CLOCK_FORMS:
            at = at.replace(year=local.year, month=local.month, day=local.day)
            at += timedelta(days=at.astimezone() <= local)
        return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    raise ValueError("expected a time such as 2026-12-01T08:00:00, 18:00 or now+12hours")


def memory_gib(text: str) -> float:
    """Return a size such as 64G, or in MiB without a unit, in GiB."""
    match = re.fullmatch(r"(\d{1,9})([KMGT]?)B?", text.upper())
    if match is None:
        raise ValueError("expected a size such as 64G")
    return int(match[1]) * _MIB[match[2]] / 1024


def node_range(text: str) -> tuple[int, int]:
    """Return the fewest and the most nodes of ``2`` or ``2-4``."""
    fewest, _, most = text.partition("-")
    if positive(fewest) > positive(most or fewest):
        raise ValueError("expected the fewest before the most")
    return int(fewest), int(most or fewest)


def positive(text: str) -> int:
    """Return a whole number above 0."""
    if not re.fullmatch(r"[0-9]{1,6}", text) or not int(text):
        raise ValueError("expected a whole number above 0")
    return int(text)


def gpu_request(text: str) -> tuple[str, int]:
    """Return the type, "" if none is named, and the number of ``8`` or ``h100:8``."""
    type_, _, count = text.rpartition(":")
    return type_, positive(count)


def gres_gpus(text: str) -> tuple[str, int] | None:
    """Return the GPUs of a list such as ``gpu:h100:8,shard:2`` as ``gpu_request`` does, or None."""
    for part in text.split(","):
        name, _, rest = part.removeprefix("gres:").partition(":")
        if name == "gpu":
            return gpu_request(rest or "1") if not rest or rest[-1].isdigit() else (rest, 1)
    return None


def array_indexes(text: str) -> tuple[list[int], int]:
    """Return the indexes of ``0-15:2,20%4``, and how many run at once.

    The limit may follow any of the parts, and is of the whole array; of several the first counts.
    """
    found: dict[int, None] = {}
    parallel = ""
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7})(?::([1-9]\d{0,6}))?)?(?:%(\d{1,7}))?", part)
        if match is None:
            raise ValueError("expected indexes such as 0-15, 1,3,7 or 0-15:4%2")
        part_range = range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1))
        if not 1 <= len(part_range) + len(found) <= MAX_TASKS:
            raise ValueError(f"expected 1 to {MAX_TASKS:,} indexes")
        found |= dict.fromkeys(part_range)
        parallel = parallel or match[4] or ""
    return list(found), min(positive(parallel), len(found)) if parallel else len(found)


def catalog_gpu(site_type: str) -> str:
    """Return the catalog's name of a site's GPU type, such as A100 of ``nvidia_a100``."""
    name = _VENDOR.sub("", site_type).replace("_", "-").upper()
    error = gpu_model_error(name)
    if error is None:
        return name
    models = [model for model in gpu_models() if {*name.split("-")} <= {*model.upper().split("-")}]
    if len(models) != 1:
        raise ValueError(error)
    return models[0]


def gpu_models_among(words: Iterable[str]) -> Iterator[str]:
    """Yield the catalog's names of those words that name a GPU model."""
    for word in words:
        with suppress(ValueError):
            yield catalog_gpu(word)
