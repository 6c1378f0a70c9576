"""Addresses of object stores, and the syntax of the keys in them."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from costopt.domain.errors import StoreError

REMOTE_SCHEMES = frozenset({"s3", "gs"})
OPTIONS = {"s3": frozenset({"endpoint", "region"}), "gs": frozenset({"endpoint"})}
EXAMPLES = "write a path, file:///path, s3://bucket/prefix or gs://bucket/prefix"


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """``path`` is a folder for the scheme "file", otherwise the prefix of every key in ``bucket``.

    ``endpoint`` and ``region`` are None where the address does not say.
    """

    scheme: str
    bucket: str
    path: str
    endpoint: str | None = None
    region: str | None = None

    def __str__(self) -> str:
        if self.scheme == "file":
            return self.path
        return f"{self.scheme}://{self.bucket}/{self.path}".rstrip("/")

    def holds(self, other: StoreAddress) -> bool:
        """Return whether the other is this place or below it; endpoints are not compared."""
        same = (self.scheme, self.bucket) == (other.scheme, other.bucket)
        return same and f"{other.path}/".startswith(f"{self.path}/" if self.path else "")

    @classmethod
    def parse(cls, uri: str) -> StoreAddress:
        """Parse a URI. Raises StoreError where it is not the address of a store."""
        if "://" not in uri:
            if not uri:
                raise StoreError(
                    "an empty text is not the address of a store", hint=EXAMPLES, code="empty"
                )
            return cls("file", "", uri)
        parts = urlsplit(uri)
        if parts.scheme == "file":
            return cls("file", "", _folder(uri, parts.netloc, parts.path))
        if parts.scheme not in REMOTE_SCHEMES:
            raise StoreError(
                f"{uri!r} is not an address of a known kind of store",
                hint=EXAMPLES,
                code="unknown_scheme",
            )
        if "@" in parts.netloc:
            raise StoreError(
                "an address must not hold credentials",
                hint="give them in the environment or as the role of the machine",
                code="credentials_in_address",
            )
        if not parts.netloc:
            raise StoreError(f"{uri!r} names no bucket", hint=EXAMPLES, code="no_bucket")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = sorted(set(options) - OPTIONS[parts.scheme])
        if unknown:
            raise StoreError(
                f"{uri!r} has unknown options: {', '.join(unknown)}",
                hint=f"{parts.scheme}:// takes {', '.join(sorted(OPTIONS[parts.scheme]))}",
                code="unknown_option",
            )
        prefix = unquote(parts.path).strip("/")
        if prefix:
            validate_key(prefix)
        return cls(
            parts.scheme, parts.netloc, prefix, options.get("endpoint"), options.get("region")
        )


def join_uri(uri: str, folder: str) -> str:
    """Return the address of a folder of the store at ``uri``."""
    return extend_uri(uri, f"/{folder}")


def extend_uri(uri: str, suffix: str) -> str:
    """Return the address whose path is that of ``uri`` with the suffix; its options stay."""
    if "://" not in uri:
        return uri.rstrip("/") + suffix
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + suffix))


def is_loopback(endpoint: str) -> bool:
    """Return whether an endpoint is on this machine, where plain HTTP crosses no network."""
    host = urlsplit(endpoint).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def validate_endpoint(endpoint: str) -> str:
    """Return the endpoint of a store. Raises StoreError unless it is HTTPS or on this machine."""
    scheme = urlsplit(endpoint).scheme
    if scheme == "https" or (scheme == "http" and is_loopback(endpoint)):
        return endpoint.rstrip("/")
    raise StoreError(
        f"endpoint {endpoint!r} cannot be used: plain HTTP is for this machine only",
        hint="give a URL that begins with https://",
        code="plain_http",
    )


def _folder(uri: str, host: str, path: str) -> str:
    if host not in ("", "localhost") or not path:
        raise StoreError(
            f"{uri!r} is not a local folder", hint="write file:///path", code="not_local"
        )
    return unquote(path)


SAFE_PART = re.compile(r"[A-Za-z0-9_@+=,%-][A-Za-z0-9._@+=,:%-]*")


def is_key_part(name: str) -> bool:
    """Return whether a key can have this part."""
    return SAFE_PART.fullmatch(name) is not None


def validate_key(key: str) -> tuple[str, ...]:
    """Return the parts of a key, which is a relative path without hidden parts.

    Each part begins with a letter, digit or one of ``_@+=,%-``, so that no key can leave its store
    and the same keys are valid in all of them. Raises StoreError.
    """
    parts = tuple(key.split("/"))
    if not all(map(is_key_part, parts)):
        raise StoreError(
            f"{key!r} is not a key: it must be a relative path without '..' or hidden parts",
            hint="name jobs and nodes with letters, digits, '-', '_' and '.'",
            code="invalid_key",
            subject=key,
        )
    return parts
