"""Calls that go wrong: throttled, refused, timed out, or answered into a closed connection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Lock

from tests.support.aws.overlay.call import Call, Forward, Reply
from tests.support.aws.overlay.refusal import refusal

Fault = Callable[[Call, Forward], Reply]
HANG_AT_MOST_S = 20.0


class DroppedError(ConnectionError):
    """The connection is closed without an answer."""


def throttle(call: Call, forward: Forward) -> Reply:
    """Refuse for too many calls; nothing happens."""
    code = "RequestLimitExceeded" if call.service == "ec2" else "ThrottlingException"
    return refusal(call, code, "Request limit exceeded.", 503 if call.service == "ec2" else 400)


def refuse(code: str, message: str, status: int = 400) -> Fault:
    """Refuse with this error; nothing happens."""
    return lambda call, _: refusal(call, code, message, status)


def unauthorized(call: Call, forward: Forward) -> Reply:
    """Refuse for a missing permission, in EC2's words; nothing happens."""
    message = (
        f"You are not authorized to perform this operation. User: arn:aws:sts::123456789012:"
        f"assumed-role/costopt/me is not authorized to perform: {call.service}:{call.action} "
        "because no identity-based policy allows it"
    )
    if call.service == "ec2":
        return refusal(call, "UnauthorizedOperation", message, 403)
    return refusal(call, "AccessDeniedException", message, 400)


def drop(call: Call, forward: Forward) -> Reply:
    """Close the connection; nothing happens."""
    raise DroppedError


def drop_after(call: Call, forward: Forward) -> Reply:
    """Do what is asked, then close the connection without an answer."""
    forward(call)
    raise DroppedError


def fail(call: Call, forward: Forward) -> Reply:
    """Answer with an internal error; nothing happens."""
    return refusal(call, "InternalError", "An internal error has occurred", 500)


FAULTS: dict[str, Fault] = {
    "throttled": throttle,
    "refused": unauthorized,
    "dropped": drop,
    "failed": fail,
    "lost": drop_after,
    "expired": refuse("RequestExpired", "Request has expired."),
}
HTML_500 = b"<!DOCTYPE html><html><body><h1>Internal error</h1><br>proxy&nbsp;1</body></html>"
HTML_502 = b"<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body/></html>"


def page(body: bytes, status: int) -> Fault:
    """Answer with a web page, as a proxy in between does; nothing happens."""
    return lambda call, _: Reply(status, body, {"Content-Type": "text/html"})


def page_after(call: Call, forward: Forward) -> Reply:
    """Do what is asked, then answer with a web page that is not XML."""
    forward(call)
    return Reply(500, HTML_500, {"Content-Type": "text/html"})


def truncate(call: Call, forward: Forward) -> Reply:
    """Do what is asked, and answer with the first half of the answer, as if that were all."""
    reply = forward(call)
    return Reply(reply.status, reply.body[: len(reply.body) // 2], reply.headers)


UNREADABLE: dict[str, Fault] = {
    "html 500": page(HTML_500, 500),
    "html 502": page(HTML_502, 502),
    "html 200": page(HTML_502, 200),
    "lost html 500": page_after,
    "truncated 200": truncate,
    "empty 200": page(b"", 200),
}
"""Answers that no AWS service gives, whatever was done."""


@dataclass
class _Rule:
    service: str
    action: str
    region: str | None
    calls: range | None
    fault: Fault
    seen: int = 0

    def meets(self, call: Call) -> bool:
        if call.service != self.service or self.action not in ("*", call.action):
            return False
        if self.region is not None and call.region != self.region:
            return False
        self.seen += 1
        return self.calls is None or self.seen in self.calls


class Faults:
    """Which calls go wrong, and how. Counts every call, so that tests can look."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self._rules: list[_Rule] = []
        self._lock = Lock()
        self._hang_until = Event()

    def on(
        self,
        service: str,
        action: str,
        fault: Fault,
        *,
        nth: int | None = None,
        times: int | None = None,
        region: str | None = None,
    ) -> None:
        """Let calls of ``action`` ("*" is all) go wrong.

        All of them from now on, or only the ``nth`` (from 1), or the first ``times``.
        """
        calls = None
        if nth is not None:
            calls = range(nth, nth + (times or 1))
        elif times is not None:
            calls = range(1, times + 1)
        self._rules.append(_Rule(service, action, region, calls, fault))

    def hang(self, call: Call, forward: Forward) -> Reply:
        """Leave the call unanswered until the faults are reset; nothing happens."""
        self._hang_until.wait(HANG_AT_MOST_S)
        raise DroppedError

    def hang_after(self, call: Call, forward: Forward) -> Reply:
        """Do what is asked and leave the call unanswered until the faults are reset."""
        forward(call)
        return self.hang(call, forward)

    def of(self, call: Call) -> Fault | None:
        """What goes wrong with this call; counts it."""
        with self._lock:
            self.calls[call.service, call.action] += 1
            met = [rule.fault for rule in self._rules if rule.meets(call)]
        return met[0] if met else None

    def reset(self) -> None:
        """Nothing goes wrong any more, and nothing was called."""
        self._hang_until.set()
        self._hang_until = Event()
        with self._lock:
            self._rules.clear()
            self.calls.clear()
