"""Alerts delivered to webhooks, signed and retried until they arrive or expire.

A generic receiver gets a JSON object ``{"id", "kind", "job", "message", "at", "daemon"}``, Slack
``{"text": …}``. With a secret, ``Costopt-Signature`` is ``t=SECONDS,v1=HEX``: HEX is the
HMAC-SHA256 under the secret of SECONDS (Unix time of sending), a full stop and the body. Delivery
is at least once; a receiver that ignores an ``id`` it has seen gets each alert once.

The receivers come from a YAML file, which is loaded safely and checked as strictly as a job file:

    webhooks:
      - url: https://hooks.slack.com/services/…
        form: slack
      - url: https://ops.example.com/costopt
        secret_file: /etc/costopt/webhook-secret
        kinds: [budget, deadline, halt]

Each delivery is one POST with a time limit, however slowly the receiver answers.
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
from enum import StrEnum
from http.client import HTTPException
from pathlib import Path
from threading import Lock, Timer
from typing import Any, Protocol
from urllib.parse import urlsplit

from costopt.daemon.http.schemas import to_json
from costopt.daemon.shared_state import Alert
from costopt.daemon.watch.alert_kinds import AlertKind
from costopt.domain.errors import SpecError
from costopt.spec.yaml_document import read_document
from costopt.web_connection import connect_to, cut

INITIAL_BACKOFF_S = 5.0
MAX_BACKOFF_S = 900.0
DELIVERY_TTL_S = 24 * 3600.0
"""An alert that no receiver accepted for this long is dropped."""
SIGNATURE = "Costopt-Signature"

log = logging.getLogger("costopt.webhooks")


class DeliverFunction(Protocol):
    """Sends a body to a URL."""

    def __call__(self, url: str, body: bytes, headers: dict[str, str], /) -> int:
        """Return the HTTP status. Raise OSError or HTTPException."""
        ...


@dataclass(slots=True)
class DeliveryQueue:
    """The alerts that one receiver has yet to get."""

    hook: Webhook
    sent: int = 0
    failures: int = 0
    since: float | None = None
    not_before: float = 0.0


class Webhooks:
    """The receivers of alerts. ``wall`` returns Unix time; ``instance`` names this daemon."""

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
        """Return the number of deliveries by (receiver, "ok" | "failed" | "dropped")."""
        with self._lock:
            return dict(self._counts)

    def deliver(self, line: DeliveryQueue, alerts_after: Callable[[int], Sequence[Alert]]) -> None:
        """Send the new alerts and the retries that are due; one thread per queue at a time.

        ``alerts_after`` returns the alerts with a higher number, oldest first.
        """
        if self._wall() < line.not_before:
            return
        for alert in alerts_after(line.sent):
            if line.hook.wants(alert.kind) and not self._sent(line, alert):
                return
            line.sent, line.failures, line.since = alert.seq, 0, None

    def _sent(self, line: DeliveryQueue, alert: Alert) -> bool:
        """Return whether the alert needs no further attempt."""
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
    """Return the value of ``Costopt-Signature``; ``at_s`` is Unix time."""
    mac = hmac.new(secret.encode(), f"{at_s}.".encode() + body, hashlib.sha256)
    return f"t={at_s},v1={mac.hexdigest()}"


def _pause_s(failures: int) -> float:
    """Return the backoff in seconds: it doubles up to a limit, and is jittered so that queues do
    not retry at the same moment."""
    longest = min(MAX_BACKOFF_S, INITIAL_BACKOFF_S * 2.0 ** min(failures - 1, 20))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing


def _escaped(text: str) -> str:
    """Return the text with Slack's three characters escaped, so that it holds no mentions:
    docs.slack.dev, "Formatting message text"."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


MIN_SECRET_LENGTH = 16
_FIELDS = {"url", "form", "secret", "secret_file", "kinds"}


class WebhookFormat(StrEnum):
    """The format that a receiver expects."""

    GENERIC = "generic"
    SLACK = "slack"


@dataclass(frozen=True, slots=True)
class Webhook:
    """A receiver. ``kinds`` are of alerts, empty for all. ``secret`` signs what is sent.

    ``name`` identifies it in logs and metrics: the host, numbered if several receivers share it.
    """

    name: str
    url: str
    form: WebhookFormat = WebhookFormat.GENERIC
    secret: str | None = None
    kinds: frozenset[str] = frozenset()

    def wants(self, kind: str) -> bool:
        """Return whether alerts of this kind are sent to it."""
        return not self.kinds or kind in self.kinds


def read_webhooks(path: str) -> tuple[Webhook, ...]:
    """Return the receivers that a YAML file names. Raise SpecFileError, SpecError."""
    values = read_document(path).values
    entries = values.get("webhooks")
    if set(values) != {"webhooks"} or not isinstance(entries, list):
        raise SpecError(f"{path}: expected a list named webhooks, and nothing else")
    hooks = [_webhook(f"{path}: webhooks[{i}]", entry) for i, entry in enumerate(entries)]
    return tuple(_named(hooks))


def _webhook(where: str, entry: Any) -> Webhook:
    if not isinstance(entry, dict):
        raise SpecError(f"{where}: expected fields and values")
    if unknown := sorted(str(key) for key in set(entry) - _FIELDS):
        raise SpecError(
            f"{where}: unknown field {unknown[0]!r}", hint=f"allowed: {', '.join(sorted(_FIELDS))}"
        )
    url = entry.get("url")
    form = entry.get("form", WebhookFormat.GENERIC.value)
    if form not in [each.value for each in WebhookFormat]:
        raise SpecError(f"{where}: form: expected generic or slack")
    return Webhook(
        "", _url(where, url), WebhookFormat(form), _secret(where, entry), _kinds(where, entry)
    )


def _url(where: str, url: Any) -> str:
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known or not url.isascii() or any(c.isspace() for c in url):
        raise SpecError(f"{where}: url: expected https://… or http://…")
    return str(url)


def _secret(where: str, entry: dict[str, Any]) -> str | None:
    """Return the secret, which no message repeats."""
    said, file = entry.get("secret"), entry.get("secret_file")
    if said is not None and file is not None:
        raise SpecError(f"{where}: give secret or secret_file, not both")
    if file is not None:
        try:
            said = Path(str(file)).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "is not a text"
            raise SpecError(f"{where}: secret_file: {file}: {str(reason).lower()}") from None
    if said is not None and (not isinstance(said, str) or len(said) < MIN_SECRET_LENGTH):
        raise SpecError(f"{where}: the secret is shorter than {MIN_SECRET_LENGTH} characters")
    return said


def _kinds(where: str, entry: dict[str, Any]) -> frozenset[str]:
    kinds = entry.get("kinds", [])
    if not isinstance(kinds, list) or any(kind not in set(AlertKind) for kind in kinds):
        raise SpecError(f"{where}: kinds: expected a list of {', '.join(AlertKind)}")
    return frozenset(kinds)


def _named(hooks: list[Webhook]) -> list[Webhook]:
    """Return the receivers with their host as the name; the path may be the receiver's secret."""
    named: list[Webhook] = []
    for hook in hooks:
        host = urlsplit(hook.url).hostname or ""
        same = sum(urlsplit(each.url).hostname == host for each in named)
        name = f"{host}#{same + 1}" if same else host
        named.append(Webhook(name, hook.url, hook.form, hook.secret, hook.kinds))
    return named


DELIVERY_TIMEOUT_S = 10.0
"""Seconds to connect, and again to send and receive the response."""


def post(url: str, body: bytes, headers: dict[str, str]) -> int:
    """Return the HTTP status; redirections are not followed. Raise OSError or HTTPException."""
    headers = dict(headers)
    try:
        connection, target = connect_to(urlsplit(url), DELIVERY_TIMEOUT_S, headers)
    except ValueError as error:
        raise HTTPException(str(error)) from None
    # A socket's own timeout restarts with each byte.
    patience = Timer(2 * DELIVERY_TIMEOUT_S, cut, [connection])
    patience.start()
    try:
        connection.request("POST", target, body, headers)
        return connection.getresponse().status
    finally:
        patience.cancel()
        connection.close()
