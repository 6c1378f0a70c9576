"""Stores in Amazon S3, or services with its protocol, and in Google Cloud Storage."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from costopt.domain.errors import MissingExtraError, StoreError, install_hint
from costopt.store.address import StoreAddress, validate_endpoint

if TYPE_CHECKING:
    from obstore import PutMode
    from obstore.store import ClientConfig, GCSConfig, RetryConfig, S3Config

    from costopt.store.remote import RemoteStore


ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
DEFAULT_REGION = "us-east-1"

CLIENT: ClientConfig = {"connect_timeout": "5s", "timeout": "60s"}
RETRIES: RetryConfig = {
    "max_retries": 8,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=5),
        "base": 2,
    },
}
"""Server errors and throttling are retried with jitter. A node has 30 to 120 s from its notice to
its end, so a failed save must be reported while there is time for another store."""


def open_s3(address: StoreAddress) -> RemoteStore:
    """Return the store of a bucket; tags are ETags.

    Every body is signed with its SHA-256 (SigV4), so S3 refuses one that arrives damaged.
    """
    obstore = _import_obstore("aws")
    from costopt.store.remote import RemoteStore

    endpoint = find_endpoint(address)
    credentials = _profile_credentials()
    region = address.region or _first_set(REGION_VARIABLES) or _profile_region(credentials)
    # One DELETE per key: many services that speak S3 do not support bulk deletes.
    config: S3Config = {"region": region, "disable_bulk_delete": True}
    if endpoint is not None:
        config["endpoint"] = validate_endpoint(endpoint)
    metadata = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT")
    if metadata:
        config["metadata_endpoint"] = metadata.rstrip("/")
    store = obstore.store.S3Store(
        address.bucket,
        prefix=address.path or None,
        config=config,
        client_options={**CLIENT, "allow_http": endpoint is not None or bool(metadata)},
        retry_config=RETRIES,
        credential_provider=credentials,
    )
    where = f"s3://{address.bucket} ({endpoint or region})"
    return RemoteStore(store, where, lambda meta: meta["e_tag"], _tag_conditions)


def _tag_conditions(tag: str) -> tuple[PutMode, ...]:
    """Return the condition on an ETag as the service writes it, and with its quotes changed: some
    services quote tags and compare them without quotes, or the other way round.
    """
    other = tag[1:-1] if tag[:1] == tag[-1:] == '"' else f'"{tag}"'
    return {"e_tag": tag}, {"e_tag": other}


def find_endpoint(address: StoreAddress) -> str | None:
    """Return the endpoint of an address, else that of the environment; None: the cloud's own."""
    if address.endpoint is not None or address.scheme == "s3":
        return address.endpoint or _first_set(ENDPOINT_VARIABLES)
    return _emulator()


def _emulator() -> str | None:
    emulator = os.environ.get("STORAGE_EMULATOR_HOST")
    return f"http://{emulator}" if emulator and "://" not in emulator else emulator


def _first_set(names: tuple[str, ...]) -> str | None:
    return next((value for name in names if (value := os.environ.get(name))), None)


def _profile_region(credentials: Callable[[], Any] | None) -> str:
    said: dict[str, str] = getattr(credentials, "config", {})
    return said.get("region", DEFAULT_REGION)


def _profile_credentials() -> Callable[[], Any] | None:
    """Return the credentials of an AWS profile, which obstore does not read, or None.

    None leaves it to obstore: the environment, a web identity, a container's or machine's role.
    """
    if "AWS_ACCESS_KEY_ID" in os.environ or util.find_spec("boto3") is None:
        return None
    files = (
        os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
        os.environ.get("AWS_CONFIG_FILE", "~/.aws/config"),
    )
    if "AWS_PROFILE" not in os.environ and not any(Path(f).expanduser().exists() for f in files):
        return None
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        return Boto3CredentialProvider()
    except Exception as error:
        raise StoreError(
            f"the AWS profile cannot be used: {error}",
            hint="see `aws configure list`, or set AWS_PROFILE to one that exists",
        ) from error


def open_gcs(address: StoreAddress) -> RemoteStore:
    """Return the store of a bucket; tags are generation numbers."""
    obstore = _import_obstore("gcp")
    from costopt.store.remote import RemoteStore

    emulator, endpoint = _emulator(), find_endpoint(address)
    config: GCSConfig = {}
    if endpoint is not None:
        config["base_url"] = validate_endpoint(endpoint)
    if emulator and endpoint == emulator:
        # An emulator requires no credentials, and there are none to send: this prevents the client
        # from searching for some.
        config["bearer_token"] = "emulator"  # noqa: S105
    store = obstore.store.GCSStore(
        address.bucket,
        prefix=address.path or None,
        config=config,
        client_options={**CLIENT, "allow_http": endpoint is not None},
        retry_config=RETRIES,
    )
    where = f"gs://{address.bucket}" + (f" ({endpoint})" if endpoint else "")
    return RemoteStore(store, where, lambda meta: meta["version"], lambda tag: ({"version": tag},))


def _import_obstore(extra: str) -> ModuleType:
    """Return the library that accesses clouds. Raises MissingExtraError naming ``extra``."""
    try:
        import obstore
        import obstore.store
    except ImportError as error:
        raise MissingExtraError(
            "this object store needs obstore, which is not installed", hint=install_hint(extra)
        ) from error
    return obstore
