"""Alerts sent to people's tools, signed, and again until they arrive.

A generic receiver gets a JSON object ``{"id", "kind", "job", "message", "at", "daemon"}``, Slack
``{"text": …}``. Where there is a secret, ``Costopt-Signature`` is ``t=SECONDS,v1=HEX``: HEX is the
HMAC-SHA256 under the secret of SECONDS (Unix time of sending), a full stop and the body. A receiver
that takes the same ``id`` for one thing gets everything once; without that, at least once.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from threading import Lock
from typing import Protocol

from costopt.daemon.http.schemas import to_json
from costopt.daemon.views import Alert
from costopt.daemon.webhook_file import Webhook, WebhookFormat
from costopt.daemon.webhook_post import post

INITIAL_BACKOFF_S = 5.0
MAX_BACKOFF_S = 900.0
DELIVERY_TTL_S = 24 * 3600.0
"""An alert that nobody took for so long is dropped."""
SIGNATURE = "Costopt-Signature"

log = logging.getLogger("costopt.webhooks")


class DeliverFunction(Protocol):
    """Brings a body to a URL."""

    def __call__(self, url: str, body: bytes, headers: dict[str, str], /) -> int:
        """The HTTP status. Raises OSError, HTTPException."""
        ...


@dataclass(slots=True)
class DeliveryQueue:
    """What one receiver still has to get."""

    hook: Webhook
    sent: int = 0
    failures: int = 0
    since: float | None = None
    not_before: float = 0.0


class Webhooks:
    """Receivers of alerts. ``wall`` is Unix time; ``instance`` names this daemon."""

    def __init__(
        self,
        hooks: Sequence[Webhook],
        *,
        instance: str | None = None,
        send: DeliverFunction | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.lines = tuple(DeliveryQueue(hook) for hook in hooks)
        self._began_at = wall()
        self._instance = instance or socket.gethostname()
        self._send = send or post
        self._wall = wall
        self._lock = Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def deliveries(self) -> dict[tuple[str, str], int]:
        """How many, by (receiver, "ok" | "failed" | "dropped")."""
        with self._lock:
            return dict(self._counts)

    def deliver(self, line: DeliveryQueue, alerts_after: Callable[[int], Sequence[Alert]]) -> None:
        """Send what is new and what is due again, of each line in one thread at a time.

        ``alerts_after`` gives the alerts with a higher number, oldest first.
        """
        if self._wall() < line.not_before:
            return
        for alert in alerts_after(line.sent):
            if line.hook.wants(alert.kind) and not self._sent(line, alert):
                return
            line.sent, line.failures, line.since = alert.seq, 0, None

    def _sent(self, line: DeliveryQueue, alert: Alert) -> bool:
        """Whether the alert needs no more sending."""
        now = self._wall()
        problem = self._try(line.hook, alert, now)
        if problem is None:
            self._count(line.hook, "ok")
            return True
        self._count(line.hook, "failed")
        line.since = now if line.since is None else line.since
        extra = {"receiver": line.hook.name, "alert": alert.seq, "kind": alert.kind}
        if now - line.since >= DELIVERY_TTL_S:
            self._count(line.hook, "dropped")
            log.error("webhook %s: an alert was dropped: %s", line.hook.name, problem, extra=extra)
            return True
        line.failures += 1
        line.not_before = now + _pause_s(line.failures)
        log.warning("webhook %s: %s; will be sent again", line.hook.name, problem, extra=extra)
        return False

    def _try(self, hook: Webhook, alert: Alert, now: float) -> str | None:
        body = self._body(hook.form, alert)
        headers = {"Content-Type": "application/json", "User-Agent": "costopt"}
        if hook.secret is not None:
            headers[SIGNATURE] = signature(hook.secret, int(now), body)
        try:
            status = self._send(hook.url, body, headers)
        except (OSError, HTTPException) as error:
            return f"{type(error).__name__}: {getattr(error, 'strerror', None) or 'no answer'}"
        return None if 200 <= status < 300 else f"answered with HTTP status {status}"

    def _body(self, form: WebhookFormat, alert: Alert) -> bytes:
        if form is WebhookFormat.SLACK:
            about = f" ({alert.job})" if alert.job else ""
            text = f"*costopt {alert.kind}*{about}: {_escaped(alert.message)}"
            return json.dumps({"text": text}).encode()
        fields = to_json(alert)
        number = fields.pop("seq")
        fields["id"] = f"{self._instance}-{self._began_at:.0f}-{number}"
        return json.dumps({**fields, "daemon": self._instance}).encode()

    def _count(self, hook: Webhook, result: str) -> None:
        with self._lock:
            self._counts[hook.name, result] += 1


def signature(secret: str, at_s: int, body: bytes) -> str:
    """The value of ``Costopt-Signature``; ``at_s`` is Unix time."""
    mac = hmac.new(secret.encode(), f"{at_s}.".encode() + body, hashlib.sha256)
    return f"t={at_s},v1={mac.hexdigest()}"


def _pause_s(failures: int) -> float:
    """Twice as long each time, up to a limit, and never at the same moment as others."""
    longest = min(MAX_BACKOFF_S, INITIAL_BACKOFF_S * 2.0 ** min(failures - 1, 20))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing


def _escaped(text: str) -> str:
    """Slack's three characters, and no mentions: docs.slack.dev, "Formatting message text"."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
