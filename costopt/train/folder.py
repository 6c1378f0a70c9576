"""Checkpoints in a folder, each in a directory of its own that is written once and never reused.

A save makes step-<step>.<generation>.<attempt>/, writes each file under a temporary name, syncs
it, renames it, syncs the directory, and writes manifest.json last, with a hard link that fails
where one exists. A directory without a whole manifest is a save that was cut short. A reused
directory, by contrast, mixes old and new files when a save is killed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from costopt.domain.errors import CheckpointError
from costopt.store import durable
from costopt.train.manifest import Manifest, SavedFile

MANIFEST = "manifest.json"
NAME = re.compile(r"step-(\d+)\.(\d+)\.(\d+)")


class Sink(Protocol):
    """What a writer of a file is given: it can only append."""

    def write(self, data: bytes, /) -> int:
        """Append; returns the number of bytes."""
        ...

    def flush(self) -> None:
        """No effect: the file is synced when it is complete."""
        ...


@dataclass(frozen=True, slots=True, order=True)
class CheckpointName:
    """Later is greater. A generation outranks a step: after going back the new line counts."""

    generation: int
    step: int
    attempt: int

    def __str__(self) -> str:
        return f"step-{self.step:09d}.{self.generation}.{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> CheckpointName | None:
        """The inverse, or None where ``text`` is no name of a checkpoint."""
        match = NAME.fullmatch(text)
        return None if match is None else cls(int(match[2]), int(match[1]), int(match[3]))


class CheckpointFolder:
    """Every method raises CheckpointError naming the path and what to do."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def begin(self, step: int, generation: int) -> CheckpointName:
        """A fresh directory for one save."""
        attempt = 0
        with _refusing("make a checkpoint in", self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            while True:
                name = CheckpointName(generation, step, attempt)
                try:
                    self.path(name).mkdir()
                except FileExistsError:
                    attempt += 1
                else:
                    return name

    def write(
        self, name: CheckpointName, file_name: str, fill: Callable[[Sink], None]
    ) -> SavedFile:
        """Write one file durably, hashing the bytes on their way to the disk."""
        path = self.path(name) / file_name
        temporary = path.with_suffix(path.suffix + ".tmp")
        with _refusing("write", path):
            with temporary.open("xb") as file:
                sink = _HashingSink(file)
                sink.fill_by(fill)
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(path)
            durable.sync_folder(path.parent)
        return SavedFile(file_name, sink.size_bytes, sink.sha256.hexdigest())

    def commit(self, name: CheckpointName, manifest: Manifest) -> None:
        """Make the checkpoint valid: from here on it is the newest."""
        path = self.path(name) / MANIFEST
        with _refusing("write", path):
            if not durable.write_durably_if_absent(path, manifest.encode()):
                raise CheckpointError(f"{path} was committed by another process")
            durable.sync_folder(self.root)

    def abandon(self, name: CheckpointName) -> None:
        """Give the space of a failed save back; never fails."""
        shutil.rmtree(self.path(name), ignore_errors=True)

    def names(self) -> list[CheckpointName]:
        """Every checkpoint directory, the newest first, whole or not."""
        with _refusing("list", self.root):
            if not self.root.exists():
                return []
            found = (CheckpointName.parse(entry.name) for entry in self.root.iterdir())
            return sorted((name for name in found if name is not None), reverse=True)

    def manifest(self, name: CheckpointName) -> Manifest:
        """The manifest. Raises ValueError saying why the checkpoint is not valid."""
        path = self.path(name) / MANIFEST
        try:
            return Manifest.decode(path.read_bytes())
        except FileNotFoundError:
            raise ValueError("no manifest: the save was cut short") from None
        except (KeyError, TypeError) as error:
            raise ValueError(f"the manifest lacks a field: {error}") from error
        except OSError as error:
            raise ValueError(f"cannot read the manifest: {error.strerror}") from error

    def read(self, name: CheckpointName, file: SavedFile) -> bytes:
        """The verified bytes of a file. Raises ValueError saying why they are not valid."""
        try:
            data = (self.path(name) / file.name).read_bytes()
        except FileNotFoundError:
            raise ValueError(f"{file.name} is missing") from None
        except OSError as error:
            raise ValueError(f"cannot read {file.name}: {error.strerror}") from error
        if len(data) != file.size_bytes:
            raise ValueError(f"{file.name} has {len(data)} bytes instead of {file.size_bytes}")
        if hashlib.sha256(data).hexdigest() != file.sha256:
            raise ValueError(f"{file.name} does not match its SHA-256")
        return data

    def prune(self, keep: int) -> None:
        """Remove all but the ``keep`` newest valid checkpoints and what lies torn behind them.

        The manifest goes first, so that a removal cut short leaves a torn checkpoint, not a
        corrupt one. Never fails: a checkpoint too many does no harm.
        """
        kept = 0
        for name in self.names():
            if kept >= keep:
                with suppress(OSError):
                    (self.path(name) / MANIFEST).unlink(missing_ok=True)
                    shutil.rmtree(self.path(name))
            elif (self.path(name) / MANIFEST).exists():
                kept += 1

    def path(self, name: CheckpointName) -> Path:
        """The directory of a checkpoint."""
        return self.root / str(name)


class _HashingSink:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.sha256 = hashlib.sha256()
        self.size_bytes = 0
        self._error: OSError | None = None

    def fill_by(self, fill: Callable[[Sink], None]) -> None:
        """Raises the first OSError of a write: torch.save buries it under a RuntimeError."""
        try:
            fill(self)
        finally:
            if self._error is not None:
                raise self._error

    def write(self, data: bytes, /) -> int:
        self.sha256.update(data)
        try:
            written = self._file.write(data)
        except OSError as error:
            self._error = self._error or error
            raise
        self.size_bytes += written
        return written

    def flush(self) -> None:
        self._file.flush()


@contextmanager
def _refusing(verb: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"cannot {verb} {path}: {error.strerror or error}"
        raise CheckpointError(message, hint=durable.remedy(error)) from error
