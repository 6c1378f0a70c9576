"""The repository of one job's checkpoints: where they are stored, how each is read, and HEAD.

HEAD                                the newest checkpoint and who may commit the next
step-N.<generation>.<attempt>/
    writer                          who took this name; a name is taken once
    objects.pt, tensors-NNNNN.bin   the state
    manifest.json                   written last: names, lengths and digests of the others
    rNNNNN-<gang>-tensors-NNNNN.bin, -objects.pt, -index
                                    of a sharded checkpoint: what this rank wrote
tags/<tag>                          the name of a checkpoint, which is then retained
tags/base-of:step-N.…               the name of the base of this delta

HEAD is the one document that says which checkpoint is the newest, and who may commit the next.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from costopt.checkpoint.identity import JobIdentity, another_job_error
from costopt.checkpoint.manifest import (
    CheckpointName,
    Delta,
    Manifest,
    Part,
    ShardSet,
    decode_with_digest,
    encode_with_digest,
    merge_chunks,
)
from costopt.checkpoint.sharded.index import ShardIndex
from costopt.domain.errors import CheckpointError, StoreError
from costopt.domain.object_store import ObjectStore
from costopt.store import open_store
from costopt.store.folder import FileStore

if TYPE_CHECKING:
    from collections.abc import Iterator


MANIFEST = "manifest.json"
WRITER = "writer"
TAGS = "tags/"
MAX_CONCURRENT_INDEXES = 16
BASE_TAG_PREFIX = "base-of:"
"""Begins tags that users cannot set, so that retaining what is tagged retains bases."""


class CheckpointRepository:
    """A job's checkpoints. Methods raise CheckpointError if the store refuses, unless noted.

    With an ``identity``, HEAD is read and moved for this job alone: where it is another job's, that
    raises CheckpointError with the code ANOTHER_JOB. HEAD of a job that is unknown is anyone's.
    """

    def __init__(self, store: ObjectStore, uri: str, identity: JobIdentity | None = None) -> None:
        self.store = store
        self.identity = identity
        self.uri = uri.rstrip("/")
        self._folder = store.root if isinstance(store, FileStore) else None
        self._numbers: dict[tuple[CheckpointName, str], float | None] = {}

    @classmethod
    def open(cls, uri: str, identity: JobIdentity | None = None) -> CheckpointRepository:
        """Open a path, file://, s3:// or gs://. Raise CheckpointError for any other address."""
        with checkpoint_errors():
            return cls(open_store(uri), uri, identity)

    def path(self, name: CheckpointName | str) -> str:
        """Return where a checkpoint is, for people: a path in a folder, else a URI."""
        return f"{self.uri if self._folder is None else self._folder}/{name}"

    def names(self) -> list[CheckpointName]:
        """Return every checkpoint, valid or not, the newest first."""
        if self._folder is not None:
            found = _entries(self._folder)
        else:
            with checkpoint_errors():
                found = {key.split("/")[0] for key in self.store.keys("step-")}
        parsed = (CheckpointName.parse(text) for text in found)
        return sorted((name for name in parsed if name is not None), reverse=True)

    def head(self) -> Head | None:
        """Return HEAD; None if nothing was ever committed. Raise ValueError if it is damaged."""
        with checkpoint_errors():
            data = self.store.get(KEY)
        head = None if data is None else Head.decode(data)
        self.check_identity(head)
        return head

    def check_identity(self, head: Head | None) -> None:
        """Raise CheckpointError if HEAD is another job's; where it names none, if the newest valid
        checkpoint is.
        """
        if self.identity is None:
            return
        found = None if head is None else head.identity
        found = self._newest_identity(head) if found is None else found
        if found is not None and self.identity.is_other(found):
            raise another_job_error(self.uri, found, self.identity)

    def _newest_identity(self, head: Head | None) -> JobIdentity | None:
        names = self.names() if head is None else map(CheckpointName.parse, head.line)
        for name in names:
            try:
                return None if name is None else self.manifest(name).identity
            except ValueError:
                continue
        return None

    def next_identity(self, found: Head | None) -> JobIdentity | None:
        """Return the job that the HEAD after ``found`` names."""
        before = None if found is None else found.identity
        return before if self.identity is None else self.identity.merged(before)

    def candidates(self) -> tuple[list[CheckpointName], str | None]:
        """Return what to restore, the best first, and what is wrong with HEAD, if anything.

        Candidates are what HEAD names, or every checkpoint stored if HEAD is damaged or missing.
        """
        try:
            head = self.head()
        except ValueError as error:
            self.check_identity(None)
            return self.names(), str(error)
        if head is None:
            return self.names(), None
        parsed = (CheckpointName.parse(text) for text in head.line)
        return [name for name in parsed if name is not None], None

    def manifest(self, name: CheckpointName) -> Manifest:
        """Return the manifest. Raise ValueError saying why the checkpoint is not valid."""
        try:
            data = self.store.get(f"{name}/{MANIFEST}")
        except StoreError as error:
            raise ValueError(error.message) from error
        if data is None:
            raise ValueError("no manifest: the save was interrupted")
        manifest = Manifest.decode(data)
        if (manifest.name, manifest.step, manifest.generation) != (
            str(name),
            name.step,
            name.generation,
        ):
            raise ValueError("the manifest is that of another checkpoint")
        return manifest

    def number(self, name: CheckpointName, label: str) -> float | None:
        """Return the finite number in a label; None if there is none, or the checkpoint is not
        valid.

        Raise CheckpointError if the store refuses: the checkpoint may be the best there is.
        Manifests never change, so each is read once.
        """
        if (name, label) not in self._numbers:
            with checkpoint_errors():
                data = self.store.get(f"{name}/{MANIFEST}")
            if data is None:
                return None
            try:
                self._numbers[name, label] = Manifest.decode(data).number(label)
            except ValueError:
                return None
        return self._numbers[name, label]

    def read(self, name: CheckpointName, part: Part, delta: Delta | None) -> bytes:
        """Return the verified bytes of a part; ``delta`` is that of the manifest.

        Raise ValueError saying why they are not valid, and in which checkpoint if not in this one.
        """
        shared = frozenset() if delta is None else delta.shared_chunks(part)
        if delta is None or not shared:
            data = self._stored(name, part)
        else:
            base = self._stored_in_base(delta.base, part, shared)
            own = self._stored(name, part) if len(shared) < len(part.digests) else b""
            data = merge_chunks(part, own, base, shared)
        part.check(memoryview(data))
        return data

    def files(
        self, name: CheckpointName, manifest: Manifest
    ) -> Iterator[tuple[Part, Delta | None]]:
        """Yield every file of a checkpoint but its manifest, the parts of its ranks included.

        Each comes with the delta that ``read`` needs for it.

        Raise ValueError if an index is not valid or the ranks' parts are not a whole state.
        """
        for part in manifest.parts:
            yield part, manifest.delta
        if manifest.shards is not None:
            from costopt.checkpoint.sharded.tiling import incomplete_reason

            indexes = self.indexes(name, manifest.shards)
            layouts = [index.layout_data for index in indexes]
            streams = [sum(part.size_bytes for part in index.tensors) for index in indexes]
            reason = incomplete_reason(layouts, streams)
            if reason is not None:
                raise ValueError(reason)
            for part in manifest.shards.indexes:
                yield part, None
            for index in indexes:
                for part in index.parts:
                    yield part, index.delta

    def indexes(self, name: CheckpointName, shards: ShardSet) -> list[ShardIndex]:
        """Return the verified indexes of all ranks. Raise ValueError saying what is wrong."""

        def read(part: Part) -> ShardIndex:
            try:
                return ShardIndex.decode(self.read(name, part, None))
            except ValueError as error:
                raise ValueError(f"{part.name}: {error}") from error

        with ThreadPoolExecutor(MAX_CONCURRENT_INDEXES) as pool:
            return list(pool.map(read, shards.indexes))

    def _stored_in_base(self, base: str, part: Part, shared: frozenset[int]) -> bytes:
        try:
            data = self._stored(base, part)
            part.check(memoryview(data), only=shared)
        except ValueError as error:
            raise ValueError(f"its base {base}: {error}") from error
        return data

    def _stored(self, name: CheckpointName | str, part: Part) -> bytes:
        try:
            data = self.store.get(f"{name}/{part.name}")
        except StoreError as error:
            raise ValueError(error.message) from error
        if data is None:
            raise ValueError(f"{part.name} is missing")
        return data

    def tags(self) -> dict[str, str]:
        """Return the tags, each with the name of its checkpoint."""
        with checkpoint_errors():
            found = {key: self.store.get(key) for key in self.store.keys(TAGS)}
        return {
            key.removeprefix(TAGS): data.decode(errors="replace")
            for key, data in found.items()
            if data is not None
        }

    def tagged(self) -> frozenset[CheckpointName]:
        """Return the checkpoints that have a tag."""
        parsed = (CheckpointName.parse(text) for text in self.tags().values())
        return frozenset(name for name in parsed if name is not None)

    def deltas(self) -> frozenset[CheckpointName]:
        """Return the checkpoints that need another, their base."""
        with checkpoint_errors():
            found = self.store.keys(TAGS + BASE_TAG_PREFIX)
        parsed = (CheckpointName.parse(key.removeprefix(TAGS + BASE_TAG_PREFIX)) for key in found)
        return frozenset(name for name in parsed if name is not None)

    def pin_base(self, name: CheckpointName, base: str) -> None:
        """Tag the base of a delta, until the delta is removed."""
        with checkpoint_errors():
            self.store.put(TAGS + base_tag(name), base.encode())

    def remove(self, name: CheckpointName) -> None:
        """Delete a checkpoint.

        The manifest goes first, so that an interrupted removal leaves a torn checkpoint, not a
        corrupt one; then the tag of its base, while there still is something to find and remove.
        """
        with checkpoint_errors():
            self.store.delete(f"{name}/{MANIFEST}")
            self.store.delete(TAGS + base_tag(name))
            for key in self.store.keys(f"{name}/"):
                self.store.delete(key)
        if self._folder is not None:  # the store does not list a killed writer's files
            shutil.rmtree(self._folder / str(name), ignore_errors=True)

    def remove_all(self, names: Sequence[CheckpointName]) -> None:
        """Remove what can be removed; a surplus checkpoint does no harm."""
        for name in names:
            with suppress(CheckpointError):
                self.remove(name)


def base_tag(delta: CheckpointName) -> str:
    """Return the tag of a delta's base."""
    return f"{BASE_TAG_PREFIX}{delta}"


@contextmanager
def checkpoint_errors() -> Iterator[None]:
    """Raise a store's refusal as a CheckpointError."""
    try:
        yield
    except StoreError as error:
        raise CheckpointError(
            error.message, hint=error.hint, code=error.code, subject=error.subject
        ) from error


def _entries(folder: Path) -> set[str]:
    try:
        return {entry.name for entry in folder.iterdir()}
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise CheckpointError(f"cannot list {folder}: {error.strerror}") from error


SCHEMA = 1
KEY = "HEAD"


@dataclass(frozen=True, slots=True)
class Head:
    """The newest checkpoint and the fencing token; only the token's holder commits.

    ``generation`` and ``writer`` (a random token) are the fencing token. ``line`` is the lineage,
    the newest first; a restore takes the first that is valid. ``at`` is wall time in POSIX seconds.
    ``identity`` is the job whose checkpoints they are, None if unknown.
    """

    generation: int
    writer: str
    line: tuple[str, ...]
    at: float
    identity: JobIdentity | None = None

    def encode(self) -> bytes:
        """Return the document to store."""
        fields = asdict(self)
        if self.identity is None:
            del fields["identity"]
        return encode_with_digest({"schema": SCHEMA, **fields})

    @classmethod
    def decode(cls, data: bytes) -> Head:
        """Return HEAD from its document. Raise ValueError saying what is wrong with it."""
        fields = decode_with_digest(data, KEY)
        if fields.pop("schema", None) != SCHEMA:
            raise ValueError(f"the {KEY} has an unsupported version")
        if "identity" in fields:
            fields["identity"] = JobIdentity.decode(fields["identity"])
        try:
            return cls(**{**fields, "line": tuple(fields["line"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"the {KEY} lacks a field: {error}") from error
