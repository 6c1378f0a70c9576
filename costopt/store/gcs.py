"""Google Cloud Storage."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from costopt.store.address import StoreAddress, validate_endpoint
from costopt.store.client import CLIENT, RETRIES, import_obstore

if TYPE_CHECKING:
    from obstore.store import GCSConfig

    from costopt.store.remote import RemoteStore


def open_gcs(address: StoreAddress) -> RemoteStore:
    """The bucket's store; tags are generation numbers."""
    obstore = import_obstore("gcp")
    from costopt.store.remote import RemoteStore

    emulator = os.environ.get("STORAGE_EMULATOR_HOST")
    if emulator and "://" not in emulator:
        emulator = f"http://{emulator}"
    endpoint = address.endpoint or emulator
    config: GCSConfig = {}
    if endpoint is not None:
        config["base_url"] = validate_endpoint(endpoint)
    if emulator and endpoint == emulator:
        # An emulator asks for no credentials, and there is none to send: this keeps the client
        # from looking for some.
        config["bearer_token"] = "emulator"  # noqa: S105
    store = obstore.store.GCSStore(
        address.bucket,
        prefix=address.path or None,
        config=config,
        client_options={**CLIENT, "allow_http": endpoint is not None},
        retry_config=RETRIES,
    )
    where = f"gs://{address.bucket}" + (f" ({endpoint})" if endpoint else "")
    return RemoteStore(store, where, lambda meta: meta["version"], lambda tag: {"version": tag})
