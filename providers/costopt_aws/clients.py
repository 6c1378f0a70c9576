"""The boto3 clients, and public pages of AWS that need no credentials.

A client is made when it is first needed: one for each service, region and use.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from http.client import HTTPException, HTTPResponse
from threading import Lock
from typing import Any, cast
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from costopt.domain.errors import BadRequestError, ProviderUnavailableError
from costopt.provider.options import OptionModel, Seconds
from costopt_aws.errors import map_errors

READ_ATTEMPTS = 5
POOLED_CONNECTIONS = 32


class Timeouts(OptionModel):
    """Seconds after which an unanswered call fails."""

    connect_s: Seconds = 5.0
    read_s: Seconds = 30.0
    launch_s: Seconds = 90.0


TIMEOUTS = Timeouts()


class Clients:
    """Safe to share between threads. ``AWS_ENDPOINT_URL`` redirects every service, as in boto3.

    botocore retries reads with jittered backoff. Launches are sent once: EC2 answers "no capacity"
    with HTTP 500, which botocore would retry unseen, and a launch whose answer is lost must be
    looked up by its key before it is sent again.
    """

    def __init__(
        self,
        profile: str | None = None,
        timeouts: Timeouts = TIMEOUTS,
        read_attempts: int = READ_ATTEMPTS,
    ) -> None:
        self._profile = profile
        self._timeouts = timeouts
        self._read_attempts = read_attempts
        self._session: Any = None
        self._clients: dict[tuple[str, str, bool], Any] = {}
        self._lock = Lock()

    def reading(self, service: str, region: str) -> Any:
        """Return a client whose calls may be retried. Raise ForbiddenError, BadRequestError."""
        return self._client(service, region, once=False)

    def launching(self, region: str) -> Any:
        """Return an EC2 client that sends each request once.

        Raise ForbiddenError, BadRequestError.
        """
        return self._client("ec2", region, once=True)

    def known_regions(self) -> tuple[str, ...]:
        """Return the regions of EC2 that this version of botocore knows, with opt-in regions."""
        with self._lock:
            return self._known_regions()

    def close(self) -> None:
        """Close the connections; clients are created again when they are needed."""
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()

    def _client(self, service: str, region: str, *, once: bool) -> Any:
        with self._lock:
            key = (service, region, once)
            if key not in self._clients:
                self._check(region)
                with map_errors(f"{service}:*", region):
                    self._clients[key] = self._opened().client(
                        service, region_name=region, config=self._config(once)
                    )
            return self._clients[key]

    def _check(self, region: str) -> None:
        """Botocore makes up an endpoint for any name, and a call to it only says "no answer"."""
        known = self._known_regions()
        if region not in known:
            near = " or ".join(get_close_matches(region, known, n=2))
            raise BadRequestError(
                f"AWS has no region {region!r} that this boto3 knows of",
                hint=(f"did you mean {near}? " if near else "")
                + "A region newer than boto3 needs a newer boto3",
            )

    def _known_regions(self) -> tuple[str, ...]:
        session = self._opened()
        return tuple(
            region
            for partition in session.get_available_partitions()
            for region in session.get_available_regions("ec2", partition)
        )

    def _opened(self) -> Any:
        if self._session is None:
            import boto3

            with map_errors("sts:GetCallerIdentity", self._profile or "the default profile"):
                self._session = boto3.session.Session(profile_name=self._profile)
        return self._session

    def _config(self, once: bool) -> Any:
        from botocore.config import Config

        return Config(
            connect_timeout=self._timeouts.connect_s,
            read_timeout=self._timeouts.launch_s if once else self._timeouts.read_s,
            retries={"mode": "standard", "total_max_attempts": 1 if once else self._read_attempts},
            max_pool_connections=POOLED_CONNECTIONS,
            user_agent_appid="costopt",
        )


TIMEOUT_S = 60.0


@contextmanager
def open_url(url: str) -> Iterator[HTTPResponse]:
    """Open the page as an uncompressed stream.

    Raise ProviderUnavailableError if it cannot be read, within the block too.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise BadRequestError(f"{url!r} is not a web address", hint="it begins with https://")
    request = Request(url, headers={"User-Agent": "costopt"})  # noqa: S310 - checked above
    try:
        with urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310
            yield cast("HTTPResponse", response)
    except HTTPError as error:
        error.close()
        raise ProviderUnavailableError(f"{url} answered {error.code} {error.reason}") from error
    except (OSError, HTTPException) as error:
        raise ProviderUnavailableError(f"{url} cannot be read: {error}") from error
