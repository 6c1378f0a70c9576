"""Saves and restores a state dictionary: durable, verified, the newest valid one first."""

from __future__ import annotations

import io
import pickle
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import unquote, urlsplit

import torch

from costopt.agent.status import RefusedCheckpoint, SavedCheckpoint
from costopt.domain.errors import CheckpointError
from costopt.train.folder import CheckpointFolder, CheckpointName
from costopt.train.manifest import Manifest

STATE = "state.pt"


@dataclass(frozen=True, slots=True)
class Restored:
    """A checkpoint that was read and verified whole."""

    name: str
    manifest: Manifest
    state: dict[str, Any]


class Checkpointer:
    """Checkpoints under one URI: a path or ``file://``. Usable alone, by one writer at a time.

    The ``keep`` newest are kept. ``generation`` numbers the incarnation of the job; checkpoints
    of a later one outrank all earlier ones, and restoring one of a later generation takes that
    number over, so that what is saved next is the newest. ``refused`` names what the last
    restore passed over and why.
    """

    def __init__(self, uri: str | Path, *, keep: int = 3, generation: int = 0) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep}: at least one checkpoint must be kept")
        self.uri = str(uri)
        self.generation = generation
        self.refused: tuple[RefusedCheckpoint, ...] = ()
        self._keep = keep
        self._folder = CheckpointFolder(_local_path(self.uri))
        self._parent: str | None = None

    def save(self, step: int, state: dict[str, Any], *, world_size: int = 1) -> SavedCheckpoint:
        """Make the state durable; blocks until it is. Earlier checkpoints stay as they are.

        Raises CheckpointError: no space, no permission.
        """
        began = time.monotonic()
        name = self._folder.begin(step, self.generation)
        try:
            file = self._folder.write(
                name, STATE, lambda sink: torch.save(state, cast("IO[bytes]", sink))
            )
            manifest = Manifest(
                step=step,
                generation=self.generation,
                world_size=world_size,
                torch_version=str(torch.__version__),
                files=(file,),
                at=time.time(),
                save_s=time.monotonic() - began,
                parent=self._parent,
            )
            self._folder.commit(name, manifest)
        except BaseException:
            self._folder.abandon(name)
            raise
        self._folder.prune(self._keep)
        return self._saved(name, manifest, time.monotonic() - began)

    def restore(self) -> Restored | None:
        """The newest valid checkpoint, or None where there is none.

        Tensors are on the CPU. Raises CheckpointError where a whole checkpoint holds objects
        that may not be loaded safely.
        """
        refused = []
        restored = None
        for name in self._folder.names():
            try:
                restored = self._read(name)
                break
            except ValueError as error:
                path = str(self._folder.path(name))
                refused.append(RefusedCheckpoint(str(name), path, str(error)))
        self.refused = tuple(refused)
        if restored is not None:
            self._resume_from(restored)
        return restored

    def load(self, name: str) -> Restored:
        """One checkpoint by name. Raises CheckpointError where it is not valid."""
        parsed = CheckpointName.parse(name)
        try:
            if parsed is None:
                raise ValueError("no name of a checkpoint")
            restored = self._read(parsed)
        except ValueError as error:
            raise CheckpointError(
                f"checkpoint {name} in {self.uri}: {error}",
                hint="every node must see the same checkpoint store",
            ) from error
        self._resume_from(restored)
        return restored

    def describe(self, restored: Restored) -> SavedCheckpoint:
        """A restored checkpoint as a report of it."""
        name = CheckpointName.parse(restored.name)
        assert name is not None
        return self._saved(name, restored.manifest, restored.manifest.save_s)

    def _resume_from(self, restored: Restored) -> None:
        self._parent = restored.name
        self.generation = max(self.generation, restored.manifest.generation)

    def _read(self, name: CheckpointName) -> Restored:
        manifest = self._folder.manifest(name)
        if (manifest.step, manifest.generation) != (name.step, name.generation):
            raise ValueError("the manifest is that of another checkpoint")
        files = {file.name: file for file in manifest.files}
        if STATE not in files:
            raise ValueError(f"the manifest names no {STATE}")
        data = self._folder.read(name, files[STATE])
        try:
            state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise CheckpointError(
                f"{self._folder.path(name)} is whole but holds objects that PyTorch does not "
                f"load safely: {str(error).splitlines()[0]}",
                hint="allow them with torch.serialization.add_safe_globals before attaching",
            ) from error
        return Restored(str(name), manifest, state)

    def _saved(self, name: CheckpointName, manifest: Manifest, save_s: float) -> SavedCheckpoint:
        return SavedCheckpoint(
            name=str(name),
            units=float(manifest.step),
            uri=str(self._folder.path(name)),
            at=manifest.at,
            size_bytes=manifest.size_bytes,
            save_s=save_s,
        )


def _local_path(uri: str) -> Path:
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if "://" in uri:
        raise CheckpointError(
            f"checkpoints cannot be kept at {uri}: {parts.scheme} is not supported",
            hint="use a path or a file:// URI on storage that every node sees",
        )
    return Path(uri)
