"""Readers of what Slurm's commands print: hostlists, durations, ``Key=value`` lines and columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from costopt.domain.errors import ProviderUnavailableError

NOTHING = frozenset(
    {"", "(null)", "None", "none", "N/A", "n/a", "Unknown", "NONE", "NOT_SET", "None assigned"}
)
NO_LIMIT = frozenset({"UNLIMITED", "INFINITE", "INVALID", "Partition_Limit"})
_PAIR = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9_/:]*)=")
_BRACKETS = re.compile(r"\[([^\]]*)\]")
_DURATION = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+)(?::(\d+))?")
MAX_HOSTS = 100_000


def parse_hostlist(text: str) -> tuple[str, ...]:
    """Return the hosts of "n[1-3,7],gpu01", in its order. Raise ProviderUnavailableError."""
    if text in NOTHING:
        return ()
    hosts = tuple(host for part in _split(text) for host in _expand(part))
    if not all(hosts) or len(hosts) > MAX_HOSTS or any("[" in host for host in hosts):
        raise unreadable("a list of nodes", text)
    return hosts


def _split(text: str) -> Iterator[str]:
    """Yield the parts between commas that are not in brackets."""
    depth, start = 0, 0
    for at, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def _expand(part: str) -> Iterator[str]:
    found = _BRACKETS.search(part)
    if found is None:
        yield part
        return
    before, after = part[: found.start()], part[found.end() :]
    for item in found[1].split(","):
        low, _, high = item.partition("-")
        if not low.isdigit() or (high and not high.isdigit()):
            raise unreadable("a list of nodes", part)
        for number in range(int(low), int(high or low) + 1):
            for rest in _expand(after):
                yield f"{before}{number:0{len(low)}d}{rest}"


def parse_duration_s(text: str) -> float | None:
    """Return the seconds of "2-00:00:00", "30:00" or "100 sec"; None where there is no limit."""
    words = text.split()
    if not words or words[0] in NOTHING or words[0] in NO_LIMIT:
        return None
    if len(words) > 1:
        return float(words[0])
    found = _DURATION.fullmatch(words[0])
    if found is None:
        raise unreadable("a duration", text)
    days, hours, minutes, seconds = found.groups()
    if seconds is None and hours is not None:  # MM:SS, or D-HH:MM
        hours, minutes, seconds = (hours, minutes, "0") if days else ("0", hours, minutes)
    elif seconds is None and days is not None:  # D-HH
        hours, minutes, seconds = minutes, "0", "0"
    parts = (int(days or 0) * 86400, int(hours or 0) * 3600, int(minutes) * 60, int(seconds or 0))
    return float(sum(parts))


def parse_instant(text: str) -> datetime | None:
    """Return the instant of seconds since 1970; None where Slurm knows none, or it is 0."""
    if text in NOTHING or text == "0":
        return None
    if not text.isdigit():
        raise unreadable("an instant", text)
    return datetime.fromtimestamp(int(text), UTC)


def parse_pairs(line: str) -> Mapping[str, str]:
    """Return the fields of a line of ``scontrol --oneliner``; values may hold spaces."""
    found = list(_PAIR.finditer(line))
    ends = [*(each.start() for each in found[1:]), len(line)][: len(found)]
    return {each[1]: line[each.end() : end].strip() for each, end in zip(found, ends, strict=True)}


def parse_columns(text: str, columns: tuple[str, ...]) -> Iterator[Mapping[str, str]]:
    """Yield rows of columns that end in "|". Raise ProviderUnavailableError for a torn row."""
    for line in text.splitlines():
        if not line.strip():
            continue
        fields = [field.strip() for field in line.split("|", len(columns) - 1)]
        if len(fields) != len(columns):
            raise unreadable("a row of its table", line)
        fields[-1] = fields[-1].removesuffix("|").strip()
        yield dict(zip(columns, fields, strict=True))


def known(text: str) -> str:
    """Return the text, "" where it means nothing."""
    return "" if text in NOTHING else text


def unreadable(what: str, text: str) -> ProviderUnavailableError:
    """Return the error for output that is not in a known form."""
    return ProviderUnavailableError(
        f"Slurm printed {what} that cannot be read: {text[:120]!r}",
        hint="report the version that `sinfo --version` prints, with this line",
        code="unreadable",
    )
