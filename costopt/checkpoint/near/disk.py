"""Snapshots on this node's disk, for a node whose agent starts anew. Bounded.

<writer>-<step>.<generation>-<microseconds>/
    objects.pt, tensors-NNNNN.bin
    snapshot.json                   written last
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import cast

from costopt.checkpoint.near.snapshot import Snapshot
from costopt.checkpoint.part import Part
from costopt.domain.errors import CheckpointError, StoreError
from costopt.store.folder import FileStore

RECORD = "snapshot.json"


class DiskTier:
    """One writer at a time. ``folder`` holds nothing else."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self.folder = folder
        self.most_bytes = most_bytes
        self._store = FileStore(folder)

    def write(self, snapshot: Snapshot, view: memoryview) -> None:
        """Make it durable here, then forget older ones. Raises CheckpointError: no space.

        The one before stays until the new one is whole, where there is room for both.
        """
        size_bytes = snapshot.size_bytes
        if size_bytes > self.most_bytes:
            raise CheckpointError(
                f"{snapshot.title} ({size_bytes / 2**20:.0f} MiB) is larger than the "
                f"{self.most_bytes / 2**20:.0f} MiB for snapshots on disk",
                hint="raise --snapshot-disk-gib",
                code="too_large",
            )
        names = {name: found for name, found in self._found().items() if found != snapshot}
        keep = max(names, key=lambda n: names[n].age, default=None)
        if keep is not None and names[keep].size_bytes + size_bytes > self.most_bytes:
            keep = None
        self._remove_all_but(keep)
        name = _name(snapshot)
        try:
            for part, begin in snapshot.extents():
                data = cast("bytes", view[begin : begin + part.size_bytes])
                self._store.put(f"{name}/{part.name}", data)
            self._store.put(f"{name}/{RECORD}", json.dumps(snapshot.encode()).encode())
        except StoreError as error:
            shutil.rmtree(self.folder / name, ignore_errors=True)
            raise CheckpointError(
                error.message, hint=error.hint, code=error.code, subject=error.subject
            ) from error
        self._remove_all_but(name)

    def snapshots(self) -> tuple[Snapshot, ...]:
        """Those that were written whole."""
        return tuple(self._found().values())

    def read(self, snapshot: Snapshot, part: Part) -> bytes:
        """The bytes of a part, verified. Raises ValueError."""
        try:
            data = (self.folder / _name(snapshot) / part.name).read_bytes()
        except OSError as error:
            raise ValueError(f"{part.name}: {error.strerror}") from error
        part.check(memoryview(data))
        return data

    def clear(self) -> None:
        """Give all space back."""
        self._remove_all_but(None)

    def _found(self) -> dict[str, Snapshot]:
        found = {}
        for path in self.folder.glob(f"*/{RECORD}"):
            with suppress(OSError, ValueError):
                found[path.parent.name] = Snapshot.decode(json.loads(path.read_bytes()))
        return found

    def _remove_all_but(self, kept: str | None) -> None:
        for path in self.folder.glob("*/"):
            if path.name != kept:
                (path / RECORD).unlink(missing_ok=True)
                shutil.rmtree(path, ignore_errors=True)


def _name(snapshot: Snapshot) -> str:
    manifest = snapshot.manifest
    micro = round(manifest.at * 1e6)
    return f"{snapshot.writer}-{manifest.step}.{manifest.generation}-{micro}"
