"""Requests to a carbon service: JSON within limits of time and size, and errors without its key."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from costopt.domain.errors import CarbonServiceError, DownloadError
from costopt.download import Downloader, DownloadLimits
from costopt.energy.live.readings import malformed

LIMITS: DownloadLimits = DownloadLimits(connect_s=3.0, read_s=5.0, total_s=8.0)
MAX_BYTES = 4_000_000
"""Two weeks of points of 5 minutes are about 0.3 MB."""
CODES = {401: "refused", 403: "refused", 429: "throttled"}


class CarbonApi:
    """A service's address. ``secrets`` are replaced by *** in every error."""

    def __init__(
        self, url: str, secrets: Sequence[str] = (), limits: DownloadLimits = LIMITS
    ) -> None:
        self._url = url.rstrip("/")
        self._secrets = [secret for secret in secrets if secret]
        self._downloader = Downloader(limits)

    def hide(self, secret: str) -> None:
        """Replace this secret as well from now on."""
        self._secrets.append(secret)

    def get(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> Any:
        """Return the answer's JSON. Raise CarbonServiceError.

        Its code is refused (401, 403), throttled (429), malformed, or unavailable.
        """
        url = f"{self._url}/{path}" + (f"?{urlencode(query, quote_via=quote)}" if query else "")
        try:
            body = self._downloader.fetch(url, MAX_BYTES, headers or {}).body
        except DownloadError as error:
            raise CarbonServiceError(
                self._redacted(error.message),
                code=CODES.get(error.status or 0, "unavailable"),
                status=error.status,
                retry_after_s=error.retry_after_s,
            ) from None
        try:
            return json.loads(body, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            raise malformed(f"{url} is not JSON") from None

    def _redacted(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***").replace(quote(secret), "***")
        return text


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
