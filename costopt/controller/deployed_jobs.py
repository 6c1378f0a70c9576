"""Jobs that a deployment brings along: they lie in a store of which nodes can change nothing.

``NAME/job.json`` holds ``document`` (the job file's text), ``policy`` (a shipped one's name or a
policy file's text), ``priority`` and ``files``: the key below ``NAME/`` of each file of the job's
folder, by its path there. terraform/modules writes it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from costopt.domain.errors import StoreError
from costopt.domain.object_store import ObjectStore

JOB = "job.json"


@dataclass(frozen=True, slots=True)
class DeployedJob:
    """As above; ``files`` are whole keys by relative path."""

    name: str
    document: str
    policy: str
    priority: int
    files: Mapping[str, str]

    def fetch(self, store: ObjectStore, folder: Path) -> None:
        """Bring the job's files to ``folder``, all or none; what is there already is left.

        Raises StoreError.
        """
        if folder.exists():
            return
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent) as made:
                whole = Path(made, self.name)
                whole.mkdir()
                for path, key in self.files.items():
                    if not store.get_file(key, whole / path):
                        raise StoreError(f"job {self.name}: {path} is missing in the store ({key})")
                whole.rename(folder)
        except OSError as error:
            raise StoreError(f"cannot make {folder}: {error.strerror}") from error


def deployed_jobs(store: ObjectStore) -> Iterator[DeployedJob]:
    """Those in ``store``, by name. Raises StoreError."""
    for key in store.keys(""):
        name, _, rest = key.partition("/")
        if rest == JOB:
            yield _read(name, store.get(key))


def _read(name: str, data: bytes | None) -> DeployedJob:
    try:
        document = json.loads(data or b"")
        files = {_relative(path): f"{name}/{key}" for path, key in document["files"].items()}
        return DeployedJob(
            name,
            str(document["document"]),
            str(document["policy"]),
            int(document["priority"]),
            files,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"{name}/{JOB} in the store is not a job of a deployment: {error}",
            hint="apply the deployment again",
            code="not_a_deployment",
        ) from None


def _relative(path: str) -> str:
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts:
        raise ValueError(f"{path!r} leads out of the job's folder")
    return path
