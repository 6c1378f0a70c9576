"""Public pages of AWS that need no credentials."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from typing import cast
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from costopt.domain.errors import BadRequestError, ProviderUnavailableError

TIMEOUT_S = 60.0


@contextmanager
def open_url(url: str, timeout_s: float = TIMEOUT_S) -> Iterator[HTTPResponse]:
    """The page as a stream, uncompressed.

    Raises ProviderUnavailableError where it cannot be had, within the block too.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise BadRequestError(f"{url!r} is no web address", hint="it begins with https://")
    request = Request(url, headers={"User-Agent": "costopt"})  # noqa: S310 - checked above
    try:
        with urlopen(request, timeout=timeout_s) as answer:  # noqa: S310
            yield cast("HTTPResponse", answer)
    except HTTPError as error:
        error.close()
        raise ProviderUnavailableError(f"{url} answered {error.code} {error.reason}") from error
    except (OSError, HTTPException) as error:
        raise ProviderUnavailableError(f"{url} cannot be read: {error}") from error
