"""The job's folder on a node that no boot script prepared, such as one of a Slurm cluster.

Clouds' nodes fetch it at their boot (``costopt.provider.boot``), before costopt is installed. Here
costopt is installed already, and has the stores and the credentials that the node uses anyway.
"""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

from costopt.domain.errors import StoreError
from costopt.domain.object_store import ObjectStore
from costopt.provider.boot import unpack_bundle


def fetch_bundle(store: ObjectStore, key: str, sha256: str, workdir: Path) -> None:
    """Unpack an archive of the store as ``workdir``, unless it is there. Raise StoreError."""
    archive = workdir.with_name(f"{workdir.name}.tar.gz")
    workdir.parent.mkdir(parents=True, exist_ok=True)
    if not store.get_file(key, archive):
        raise StoreError(f"the store holds no {key}: this job's folder was never uploaded")
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != sha256:
        raise StoreError(f"{key} has digest {found}, not {sha256}")
    try:
        unpack_bundle(archive, workdir)
    except (OSError, tarfile.TarError) as error:
        raise StoreError(f"{key} cannot be unpacked into {workdir}: {error}") from error
    archive.unlink()
