"""The protocol of interruption notice sources, the base of those that poll, and metadata requests.

``PollingNoticeSource`` queries in threads and keeps the newest answers for the agent's loop, which
never waits. ``FileNoticeSource`` reads a notice from a file, as the embedded provider writes it.
``get_metadata`` sends one request to a cloud's metadata service, a link-local HTTP server without
TLS.
"""

from __future__ import annotations

import http.client
import json
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Notice:
    """The provider is about to interrupt the node; ``action`` is "terminate", "stop" or
    "hibernate".

    ``time`` is when, as the provider reported it (ISO 8601), or None. ``deadline_at`` is the same
    by this node's wall clock, POSIX seconds; None if it is unknown.
    """

    action: str
    time: str | None
    deadline_at: float | None = None


class NoticeSource(Protocol):
    """Polled in each of the agent's ticks; no method blocks.

    A source that cannot be reached has no notice: an unreachable source is not an interruption.
    ``signals`` are those by which the provider announces an interruption: the source handles them,
    and the agent leaves as soon as its trainer has saved, as the node may be waited for.
    """

    signals: frozenset[signal.Signals]

    def start(self) -> None:
        """Begin to watch."""
        ...

    def notice(self) -> Notice | None:
        """Return the notice, or None while there is none. A notice is never withdrawn."""
        ...

    def rebalance_warning(self) -> str:
        """Return a warning short of a notice, such as a rebalance recommendation, or ""."""
        ...

    def error(self) -> str:
        """Return why the source cannot be queried at present, or ""."""
        ...

    def close(self) -> None:
        """Stop watching."""
        ...


class NoNotices:
    """A source for nodes whose interruptions are not announced, such as on-premises ones."""

    signals: frozenset[signal.Signals] = frozenset()

    def start(self) -> None:
        """Do nothing: there is nothing to watch."""

    def notice(self) -> Notice | None:
        """Return None: there never is a notice."""
        return None

    def rebalance_warning(self) -> str:
        """Return "": there never is a warning."""
        return ""

    def error(self) -> str:
        """Return "": nothing can fail."""
        return ""

    def close(self) -> None:
        """Do nothing: there is nothing to stop."""


FAILURES_BEFORE_ERROR = 3
"""A single lost packet is not worth a report."""


class PollingNoticeSource:
    """Base of the sources that query a metadata service, each query in a daemon thread.

    ``_watch`` repeats a query and records what it finds with ``_announce`` and ``_warn``. A query
    that fails is retried; it changes nothing that is known.
    """

    signals: frozenset[signal.Signals] = frozenset()

    def __init__(self, poll_s: float) -> None:
        self._poll_s = poll_s
        self._closed = threading.Event()
        self._notice: Notice | None = None
        self._warnings: dict[str, str] = {}
        self._failures: dict[str, str] = {}
        self._threads: list[threading.Thread] = []

    def queries(self) -> dict[str, Callable[[], None]]:
        """Return the queries by name; each raises MetadataError without a usable answer."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin to watch."""
        for name, question in self.queries().items():
            thread = threading.Thread(
                target=self._watch, args=(name, question), name=f"notices-{name}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def notice(self) -> Notice | None:
        """Return the notice, or None while there is none."""
        return self._notice

    def rebalance_warning(self) -> str:
        """Return a warning short of a notice, or ""."""
        return "; ".join(text for text in self._warnings.values() if text)

    def error(self) -> str:
        """Return why the service cannot be queried at present, or ""."""
        return "; ".join(dict.fromkeys(text for text in self._failures.values() if text))

    def close(self) -> None:
        """Stop watching; a thread that waits for an answer ends with it."""
        self._closed.set()

    def _announce(self, notice: Notice) -> None:
        """Keep the notice with the earliest deadline: a later one cannot extend the time."""
        known = self._notice
        if known is None or (notice.deadline_at or 0.0) < (known.deadline_at or 0.0):
            self._notice = notice

    def _warn(self, name: str, text: str) -> None:
        self._warnings[name] = text

    def _watch(self, name: str, question: Callable[[], None]) -> None:
        failures = 0
        while not self._closed.is_set():
            try:
                question()
                failures = 0
                self._failures[name] = ""
            except MetadataError as error:
                failures += 1
                if failures >= FAILURES_BEFORE_ERROR:
                    self._failures[name] = str(error)
            self._closed.wait(self._poll_s)


class FileNoticeSource(NoNotices):
    """The file {"action": …, "time": …, "noticed_at": …}; times in ISO 8601.

    Times are the provider's, whose clock runs ``speed`` times faster than the wall: the deadline is
    counted from when the file appeared. A file that exists but cannot be parsed still counts as a
    notice: an unnecessary save costs less than a missing one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.speed = 1.0

    def notice(self) -> Notice | None:
        """Return the notice, or None if there is no file."""
        try:
            appeared_at = self.path.stat().st_mtime
            fields = json.loads(self.path.read_bytes())
            action, time = str(fields.get("action", "terminate")), fields.get("time")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, AttributeError):
            return Notice("terminate", None)
        left_s = _seconds_between(fields.get("noticed_at"), time)
        deadline_at = None if left_s is None else appeared_at + left_s / self.speed
        return Notice(action, time if isinstance(time, str) else None, deadline_at)


def _seconds_between(start: object, end: object) -> float | None:
    if not isinstance(start, str) or not isinstance(end, str):
        return None
    try:
        return max(
            0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
        )
    except (ValueError, TypeError):
        return None


MAX_RESPONSE_BYTES = 65_536


class MetadataError(Exception):
    """The service did not answer, or not in HTTP; the message says how."""


@dataclass(frozen=True, slots=True)
class MetadataResponse:
    """An HTTP response of any status; header names are in lower case."""

    status: int
    text: str
    headers: Mapping[str, str]


def get_metadata(
    endpoint: str, path: str, headers: Mapping[str, str], *, method: str = "GET", timeout_s: float
) -> MetadataResponse:
    """Send one request on a connection of its own. Raise MetadataError if there is no response.

    No proxy is used, whatever the environment says: a proxy would answer for another machine.
    """
    parts = urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}")
    connection = http.client.HTTPConnection(
        parts.hostname or "", parts.port or 80, timeout=timeout_s
    )
    try:
        connection.request(method, parts.path.rstrip("/") + path, headers=dict(headers))
        response = connection.getresponse()
        text = response.read(MAX_RESPONSE_BYTES).decode(errors="replace")
        lowered = {name.lower(): value for name, value in response.getheaders()}
        return MetadataResponse(response.status, text, lowered)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise MetadataError(f"{endpoint}{path}: {error or type(error).__name__}") from error
    finally:
        connection.close()
