"""NoticeSource, polling base, metadata HTTP.

What every source of interruption notices answers, and nothing more.

What threads of a source have heard so far, read by the agent's loop without waiting.

A notice that appears as a file, as the embedded provider tells it.

One request to a cloud's metadata service, which is a link-local HTTP server without TLS.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Notice:
    """The provider takes the node: ``action`` is "terminate", "stop" or "hibernate".

    ``time`` is when, as it was told (ISO 8601), or None. ``deadline_at`` is the same by this
    node's wall clock, POSIX seconds; None where nobody said.
    """

    action: str
    time: str | None
    deadline_at: float | None = None


class NoticeSource(Protocol):
    """Asked at each look of the agent; no method waits for anything.

    A source that cannot be reached has no notice to give: silence is not an interruption.
    """

    def start(self) -> None:
        """Begin to watch."""
        ...

    def notice(self) -> Notice | None:
        """The notice, or None while there is none. A notice once given is not taken back."""
        ...

    def rebalance_warning(self) -> str:
        """What the provider says short of a notice, such as a rebalance recommendation; or ""."""
        ...

    def error(self) -> str:
        """Why the source cannot be asked at present, or ""."""
        ...

    def close(self) -> None:
        """Stop watching."""
        ...


class NoNotices:
    """For a node that nobody announces anything to, such as on-premises."""

    def start(self) -> None:
        """Nothing to watch."""

    def notice(self) -> Notice | None:
        """There never is one."""
        return None

    def rebalance_warning(self) -> str:
        """There never is one."""
        return ""

    def error(self) -> str:
        """There never is any."""
        return ""

    def close(self) -> None:
        """Nothing to stop."""


FAILURES_BEFORE_ERROR = 3
"""One lost packet is no trouble worth telling."""


class PollingNoticeSource:
    """Base of the sources that ask a metadata service, each question in a daemon thread.

    ``_watch`` asks again and again and takes note of what it hears with ``_announce`` and
    ``_warn``. A question that fails is asked again; it changes nothing that is known.
    """

    def __init__(self, poll_s: float) -> None:
        self._poll_s = poll_s
        self._closed = threading.Event()
        self._notice: Notice | None = None
        self._warnings: dict[str, str] = {}
        self._troubles: dict[str, str] = {}
        self._threads: list[threading.Thread] = []

    def queries(self) -> dict[str, Callable[[], None]]:
        """By name, what is asked; each raises MetadataError where there is no usable answer."""
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
        """The notice, or None while there is none."""
        return self._notice

    def rebalance_warning(self) -> str:
        """What the provider says short of a notice, or ""."""
        return "; ".join(text for text in self._warnings.values() if text)

    def error(self) -> str:
        """Why the service cannot be asked at present, or ""."""
        return "; ".join(dict.fromkeys(text for text in self._troubles.values() if text))

    def close(self) -> None:
        """Stop watching; a thread that waits for an answer ends with it."""
        self._closed.set()

    def _announce(self, notice: Notice) -> None:
        """Keep the notice that strikes first: another one cannot give time back."""
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
                self._troubles[name] = ""
            except MetadataError as error:
                failures += 1
                if failures >= FAILURES_BEFORE_ERROR:
                    self._troubles[name] = str(error)
            self._closed.wait(self._poll_s)


class FileNoticeSource(NoNotices):
    """The file {"action": …, "time": …, "noticed_at": …}; times in ISO 8601.

    They are the provider's, whose clock runs ``speed`` times faster than the wall: the deadline is
    counted from when the file appeared. A file that exists but cannot be understood is a notice
    all the same: to save once too often costs less than not to save.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.speed = 1.0

    def notice(self) -> Notice | None:
        """The notice, or None where there is no file."""
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


MAX_ANSWER_BYTES = 65_536


class MetadataError(Exception):
    """The service did not answer, or not in HTTP; the message says how."""


@dataclass(frozen=True, slots=True)
class MetadataResponse:
    """An HTTP answer, whatever its status; header names are in lower case."""

    status: int
    text: str
    headers: Mapping[str, str]


def get_metadata(
    endpoint: str,
    path: str,
    headers: Mapping[str, str],
    *,
    method: str = "GET",
    timeout_s: float,
) -> MetadataResponse:
    """One request on a connection of its own. Raises MetadataError.

    No proxy is used, whatever the environment says: a proxy would answer for another machine.
    """
    parts = urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}")
    connection = http.client.HTTPConnection(
        parts.hostname or "", parts.port or 80, timeout=timeout_s
    )
    try:
        connection.request(method, parts.path.rstrip("/") + path, headers=dict(headers))
        answer = connection.getresponse()
        text = answer.read(MAX_ANSWER_BYTES).decode(errors="replace")
        told = {name.lower(): value for name, value in answer.getheaders()}
        return MetadataResponse(answer.status, text, told)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise MetadataError(f"{endpoint}{path}: {error or type(error).__name__}") from error
    finally:
        connection.close()
