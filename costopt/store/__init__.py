"""Object stores by address: a folder, S3 or Google Cloud Storage behind one port."""

from __future__ import annotations

from pathlib import Path

from costopt.domain.object_store import ObjectStore
from costopt.store.address import StoreAddress

__all__ = ["open_store"]


def open_store(uri: str) -> ObjectStore:
    """The store at ``uri``: a path, file://, s3://bucket/prefix or gs://bucket/prefix.

    Endpoint and region come from the address (``?endpoint=…&region=…``), else from
    AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION and AWS_DEFAULT_REGION, or for gs:// from
    STORAGE_EMULATOR_HOST. Plain HTTP is allowed to this machine only. Credentials are found the way
    the cloud's own tools find them, never in the address. No request is sent to the store yet.
    Raises StoreError for an unusable address, MissingExtraError without obstore.
    """
    address = StoreAddress.parse(uri)
    match address.scheme:
        case "s3":
            from costopt.store.backends import open_s3

            return open_s3(address)
        case "gs":
            from costopt.store.backends import open_gcs

            return open_gcs(address)
    from costopt.store.folder import FileStore

    return FileStore(Path(address.path))
