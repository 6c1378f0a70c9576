"""What a job's nodes fetch, brought into the store that they share with the controller."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from costopt.domain.job import Job
from costopt.domain.ports import ObjectStore
from costopt.domain.runtime import Payload, StoredFile
from costopt.session.bundle import write_bundle
from costopt.session.wheel import node_requirements, wheel_name, write_wheel

BUNDLE = "bundle.tar.gz"
FOLDER = "payloads"
PIECE_BYTES = 1 << 20


def upload_payload(job: Job, store: ObjectStore, uri: str) -> Payload:
    """Bundle the job's folder and costopt, and put both into ``store``, which is at ``uri``.

    Each file lies below the job's name under its own digest, so what is there already is not sent
    again, what runs is never changed, and nodes need read no other job's code. Raises SpecError,
    StoreError.
    """
    with tempfile.TemporaryDirectory(prefix="costopt-payload-") as folder:
        wheel, bundle = Path(folder, wheel_name()), Path(folder, BUNDLE)
        write_wheel(wheel)
        write_bundle(Path(job.workdir), bundle)
        return Payload(
            job=job.name,
            store=uri,
            wheel=_put(store, job.name, wheel),
            bundle=_put(store, job.name, bundle),
            requirements=node_requirements(),
        )


def _put(store: ObjectStore, job: str, path: Path) -> StoredFile:
    digest = _sha256(path)
    folder = f"{FOLDER}/{job}/{digest}/"
    key = f"{folder}{path.name}"
    if key not in store.keys(folder):
        store.put_file(key, path)
    return StoredFile(key, digest, path.stat().st_size)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()
