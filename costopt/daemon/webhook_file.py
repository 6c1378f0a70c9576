"""The file that says whom the daemon tells: read safely, checked as strictly as a job file.

webhooks:
  - url: https://hooks.slack.com/services/…
    form: slack
  - url: https://ops.example.com/costopt
    secret_file: /etc/costopt/webhook-secret
    kinds: [budget, deadline, halt]
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from costopt.domain.errors import SpecError
from costopt.spec.document import read_document

ALERT_KINDS = (
    "budget",
    "deadline",
    "failed",
    "halt",
    "interruptions",
    "nodes",
    "orphan",
    "tick",
    "trouble",
)
MIN_SECRET_LENGTH = 16
_FIELDS = {"url", "form", "secret", "secret_file", "kinds"}


class WebhookFormat(StrEnum):
    """What the receiver expects."""

    GENERIC = "generic"
    SLACK = "slack"


@dataclass(frozen=True, slots=True)
class Webhook:
    """A receiver. ``kinds`` are of alerts, empty for all. ``secret`` signs what is sent.

    ``name`` stands for it in logs and metrics: the host, and its place among those of that host.
    """

    name: str
    url: str
    form: WebhookFormat = WebhookFormat.GENERIC
    secret: str | None = None
    kinds: frozenset[str] = frozenset()

    def wants(self, kind: str) -> bool:
        """Whether alerts of this kind are sent there."""
        return not self.kinds or kind in self.kinds


def read_webhooks(path: str) -> tuple[Webhook, ...]:
    """The receivers that a YAML file names. Raises SpecFileError, SpecError."""
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
    """The secret itself, which no message repeats."""
    said, file = entry.get("secret"), entry.get("secret_file")
    if said is not None and file is not None:
        raise SpecError(f"{where}: give secret or secret_file, not both")
    if file is not None:
        try:
            said = Path(str(file)).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "is no text"
            raise SpecError(f"{where}: secret_file: {file}: {str(reason).lower()}") from None
    if said is not None and (not isinstance(said, str) or len(said) < MIN_SECRET_LENGTH):
        raise SpecError(f"{where}: the secret is shorter than {MIN_SECRET_LENGTH} characters")
    return said


def _kinds(where: str, entry: dict[str, Any]) -> frozenset[str]:
    kinds = entry.get("kinds", [])
    if not isinstance(kinds, list) or any(kind not in ALERT_KINDS for kind in kinds):
        raise SpecError(f"{where}: kinds: expected a list of {', '.join(ALERT_KINDS)}")
    return frozenset(kinds)


def _named(hooks: list[Webhook]) -> list[Webhook]:
    """Each with its host as its name; the path may be the receiver's secret."""
    named: list[Webhook] = []
    for hook in hooks:
        host = urlsplit(hook.url).hostname or ""
        same = sum(urlsplit(each.url).hostname == host for each in named)
        name = f"{host}#{same + 1}" if same else host
        named.append(Webhook(name, hook.url, hook.form, hook.secret, hook.kinds))
    return named
