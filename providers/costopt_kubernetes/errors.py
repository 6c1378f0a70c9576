"""Maps what the API server answers to ProviderErrors: what failed, about what, and what to do.

https://kubernetes.io/docs/reference/using-api/api-concepts/ and the server's Status objects.
"""

from __future__ import annotations

from typing import Any

from costopt.domain.errors import (
    BadRequestError,
    ForbiddenError,
    ProviderError,
    ProviderUnavailableError,
    QuotaExceededError,
    ThrottledError,
)
from costopt.domain.text import excerpt

EXISTS = "AlreadyExists"
MISSING = "NotFound"
CONFLICT = "Conflict"
OVER_QUOTA = "exceeded quota"
"""Of a 403 by a ResourceQuota, which else looks like that of a missing right."""
POD_SECURITY = "violates PodSecurity"


class StatusError(BadRequestError):
    """The server refused; ``reason`` is its own word, such as AlreadyExists."""

    def __init__(self, message: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


def from_status(status: int, body: Any, act: str, about: str) -> ProviderError:
    """Return the error of an answer; ``act`` is what was asked, such as "create pods"."""
    document = body if isinstance(body, dict) else {}
    reason, message = str(document.get("reason") or status), str(document.get("message") or "")
    said = f"{about}: {act}: {excerpt(message) or f'the server answered {status}'}"
    if status == 401:
        return ForbiddenError(
            f"{about}: the cluster does not accept the credentials",
            hint="log in again, or name another context: in the account file",
        )
    if status == 403:
        return _forbidden(said, message, act)
    if status == 429:
        return ThrottledError(said, hint="the API server limits requests; it is asked again later")
    if status >= 500 or status in (408, 410):
        return ProviderUnavailableError(said)
    return StatusError(said, reason)


def _forbidden(said: str, message: str, act: str) -> ProviderError:
    if OVER_QUOTA in message:
        return QuotaExceededError(said, hint="raise the namespace's ResourceQuota, or use less")
    if POD_SECURITY in message:
        return StatusError(said, "PodSecurity", hint="set run_as_user: and claims: as it allows")
    return ForbiddenError(
        said, hint=f"allow to {act}: `costopt doctor kubernetes --rbac` prints what is missing"
    )
