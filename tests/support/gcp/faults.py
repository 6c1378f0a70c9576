"""Calls that go wrong: throttled, refused, unanswered, or answered into a closed connection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from tests.support.gcp.responses import Answer, Call, RefusedError, Reply

Fault = Callable[[Call, Answer], Reply]


class DroppedError(ConnectionError):
    """The connection is closed without an answer."""


def refuse(reason: str, status: int, message: str = "Google's own words.") -> Fault:
    """Refuse with this error; nothing happens."""

    def refused(call: Call, answer: Answer) -> Reply:
        raise RefusedError(status, reason, message)

    return refused


def drop(call: Call, answer: Answer) -> Reply:
    """Close the connection; nothing happens."""
    raise DroppedError


def drop_after(call: Call, answer: Answer) -> Reply:
    """Do what is asked, then close the connection without an answer."""
    answer(call)
    raise DroppedError


throttle = refuse("rateLimitExceeded", 403, "Rate Limit Exceeded")
too_many = refuse("rateLimitExceeded", 429, "Too Many Requests")
unauthorized = refuse("forbidden", 403, "Required 'compute.x' permission for 'projects/p'")
fail = refuse("backendError", 503, "Internal error. Please try again.")
FAULTS: dict[str, Fault] = {
    "throttled": throttle,
    "too many": too_many,
    "refused": unauthorized,
    "dropped": drop,
    "failed": fail,
    "lost": drop_after,
}

HTML = b"<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body><br></html>"


def page(body: bytes, status: int) -> Fault:
    """Answer with what is no JSON object, as a proxy in between does; nothing happens."""
    return lambda call, answer: Reply(status=status, page=body)


def page_after(call: Call, answer: Answer) -> Reply:
    """Do what is asked, then answer with a web page."""
    answer(call)
    return Reply(status=500, page=HTML)


def truncate(call: Call, answer: Answer) -> Reply:
    """Do what is asked, and answer with the first half of the answer, as if that were all."""
    reply = answer(call)
    return Reply(status=reply.status, page=reply.body[: len(reply.body) // 2])


UNREADABLE: dict[str, Fault] = {
    "html 500": page(HTML, 500),
    "html 502": page(HTML, 502),
    "html 200": page(HTML, 200),
    "lost html 500": page_after,
    "truncated 200": truncate,
    "empty 200": page(b"", 200),
    "list 500": page(b"[1]", 500),
    "text 200": page(b'"yes"', 200),
    "null 200": page(b"null", 200),
}
"""Answers that no API of Google Cloud gives, whatever was done."""


@dataclass
class _Rule:
    action: str
    nth: range | None
    fault: Fault
    seen: int = 0

    def meets(self, call: Call) -> bool:
        if self.action not in ("*", call.action):
            return False
        self.seen += 1
        return self.nth is None or self.seen in self.nth


class Faults:
    """Which calls go wrong, and how. Counts every call, so that tests can look."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._rules: list[_Rule] = []
        self._lock = Lock()

    def on(self, action: str, fault: Fault, *, nth: int = 1, times: int | None = 1) -> None:
        """Let the ``times`` calls from the ``nth`` on go wrong; None: all of them."""
        calls = None if times is None else range(nth, nth + times)
        self._rules.append(_Rule(action, calls, fault))

    def of(self, call: Call) -> Fault | None:
        """What goes wrong with this call; counts it."""
        with self._lock:
            self.calls[call.action] += 1
            met = [rule.fault for rule in self._rules if rule.meets(call)]
        return met[0] if met else None

    def reset(self) -> None:
        """Nothing goes wrong any more, and nothing was called."""
        with self._lock:
            self._rules.clear()
            self.calls.clear()
