"""Commits checkpoints: first all bytes are made durable, then the manifest, then HEAD.

A name is taken once and never again, so that no save can mix with another. HEAD is moved by
compare-and-swap and holds the generation and a random token of the writer: a writer that finds
another's token there has been superseded and commits nothing more.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import cast

from costopt.checkpoint.history import RetentionPolicy
from costopt.checkpoint.lineage import (
    LOST_WRITE,
    compare_and_swap_head,
    current_lineage,
    lineage_from,
    parse_names,
    read_head,
    read_valid_manifest,
)
from costopt.checkpoint.manifest import (
    CHUNK_BYTES,
    CheckpointName,
    Delta,
    Manifest,
    Origin,
    Part,
    changed_chunks,
)
from costopt.checkpoint.repository import (
    MANIFEST,
    WRITER,
    CheckpointRepository,
    Head,
    checkpoint_errors,
)
from costopt.domain.errors import CheckpointError

MAX_CONCURRENT_PARTS = 2


@dataclass(frozen=True, slots=True)
class SaveRequest:
    """A state that is to become a checkpoint. ``began_at`` is of the monotonic clock.

    ``as_delta``: chunks that have not changed since the newest checkpoint are not written again.
    ``layout`` says what a rank's part of a sharded state consists of.
    """

    step: int
    world_size: int
    began_at: float
    files: Mapping[str, memoryview]
    labels: tuple[tuple[str, str], ...] = ()
    as_delta: bool = False
    layout: bytes = b""


@dataclass(frozen=True, slots=True)
class CommitResult:
    """A checkpoint that is durable and the newest; ``save_s`` is how long the whole save took."""

    name: CheckpointName
    manifest: Manifest
    save_s: float


@dataclass(slots=True)
class Committer:
    """Commits for one generation of one job.

    ``parent`` is the checkpoint from which training continues; None is what HEAD names by then.
    Nothing is claimed before ``claim`` or the first ``commit``; from then on an earlier claimant is
    superseded, and a later one supersedes this.
    """

    place: CheckpointRepository
    generation: int
    keep: RetentionPolicy = field(default_factory=RetentionPolicy)
    origin: Origin = field(default_factory=Origin)
    parent: str | None = None
    writer: str = field(default_factory=lambda: uuid.uuid4().hex)
    claimed: bool = False
    chunk_bytes: int = CHUNK_BYTES

    def claim(self) -> None:
        """Claim the repository. Raise CheckpointError if a later generation has claimed it."""
        if not self.claimed:
            self._move_head(None)
            self.claimed = True

    def set_parent(self, parent: str | None, generation: int) -> None:
        """Continue from another checkpoint; a later generation claims the repository again."""
        self.claimed = self.claimed and generation == self.generation
        self.parent, self.generation = parent, generation

    def commit(self, saving: SaveRequest) -> CommitResult:
        """Make the state a checkpoint and move HEAD to it.

        Raise CheckpointError: superseded, no space, no permission, a store that refuses. HEAD then
        still names what it named before, or the outcome of the last request to the store is unknown
        and the checkpoint may have become the newest after all.
        """
        self.claim()
        found = read_head(self.place)
        self._check_own(found)
        name = self._take_name(saving.step)
        try:
            manifest = self._write(name, saving, self._base(found) if saving.as_delta else None)
        except BaseException:
            self.place.remove_all([name])
            raise
        head = self._advance(name)
        self.parent = str(name)
        self._prune(head)
        return CommitResult(name, manifest, time.monotonic() - saving.began_at)

    def _take_name(self, step: int) -> CheckpointName:
        """Take an unused name. The mark in it distinguishes our own repeated put from another's."""
        mark = f"{self.writer} {uuid.uuid4().hex}".encode()
        taken = {name.attempt for name in self.place.names() if name.step == step}
        attempt = max(taken, default=-1)
        while True:
            attempt += 1
            name = CheckpointName(self.generation, step, attempt)
            key = f"{name}/{WRITER}"
            with checkpoint_errors():
                if self.place.store.put_if_absent(key, mark) or self.place.store.get(key) == mark:
                    return name

    def _base(self, head: Head | None) -> Manifest | None:
        """Return what HEAD names first, or its base if that is a delta; None if training does not
        continue from it. Neither is pruned before HEAD has moved on.
        """
        newest = head.line[0] if head is not None and head.line else None
        if newest is None or self.parent not in (None, newest):
            return None
        manifest = read_valid_manifest(self.place, newest)
        if manifest is None or manifest.delta is None:
            return manifest
        return read_valid_manifest(self.place, manifest.delta.base)

    def _write(self, name: CheckpointName, saving: SaveRequest, base: Manifest | None) -> Manifest:
        parts, delta = self._write_parts(
            name,
            saving.files,
            None if base is None else base.name,
            () if base is None else base.parts,
        )
        if delta is not None:
            self.place.pin_base(name, delta.base)
        manifest = Manifest(
            step=saving.step,
            generation=self.generation,
            world_size=saving.world_size,
            parts=parts,
            at=time.time(),
            save_s=time.monotonic() - saving.began_at,
            name=str(name),
            parent=self.parent,
            origin=self.origin,
            labels=saving.labels,
            delta=delta,
            identity=self.place.identity,
        )
        key, data = f"{name}/{MANIFEST}", manifest.encode()
        store = self.place.store
        with checkpoint_errors():
            if not store.put_if_absent(key, data) and store.get(key) != data:
                raise CheckpointError(
                    f"{self.place.path(name)} was committed by another process",
                    hint="let only one process at a time save there",
                )
            self._check_stored(name, manifest, store.keys(f"{name}/"))
        return manifest

    def _check_stored(
        self, name: CheckpointName, manifest: Manifest, keys: Collection[str]
    ) -> None:
        """Raise CheckpointError if the store lacks a file that it accepted, unless a writer that
        has taken over removed it: then raise SupersededError.
        """
        delta = manifest.delta
        files = (
            part.name
            for part in manifest.parts
            if delta is None or len(delta.shared_chunks(part)) < len(part.digests)
        )
        lost = [each for each in (*files, MANIFEST) if f"{name}/{each}" not in keys]
        if lost:
            self._check_own(read_head(self.place))
            raise CheckpointError(
                f"the store accepted {', '.join(lost)} of {self.place.path(name)} and did not "
                "store it",
                hint="check the store with `costopt doctor`, or use another one",
                code=LOST_WRITE,
            )

    def _write_parts(
        self,
        name: CheckpointName,
        files: Mapping[str, memoryview],
        base: str | None = None,
        base_parts: Iterable[Part] = (),
    ) -> tuple[tuple[Part, ...], Delta | None]:
        """Write the files, without the chunks that the parts of ``base`` hold."""
        known = {part.name: part for part in base_parts}

        def write(file_name: str) -> tuple[Part, tuple[int, ...]]:
            data = files[file_name]
            part = Part.of(file_name, data, self.chunk_bytes)
            shared = part.same_chunks(known[file_name]) if file_name in known else ()
            if not shared:
                # Stores accept any buffer; the state must not be copied again.
                self.place.store.put(f"{name}/{file_name}", cast("bytes", data))
            elif len(shared) < len(part.digests):
                self.place.store.put(f"{name}/{file_name}", changed_chunks(part, data, shared))
            return part, shared

        pool = ThreadPoolExecutor(MAX_CONCURRENT_PARTS)
        try:
            with checkpoint_errors():
                written = tuple(pool.map(write, files))
        finally:
            pool.shutdown(cancel_futures=True)
        parts = tuple(part for part, _ in written)
        left_out = tuple((part.name, shared) for part, shared in written if shared)
        return parts, Delta(base, left_out) if base is not None and left_out else None

    def _advance(self, name: CheckpointName) -> Head:
        """Move HEAD. A checkpoint that HEAD may name after all is not removed."""
        try:
            return self._move_head(name)
        except SupersededError:
            self.place.remove_all([name])
            raise

    def _move_head(self, name: CheckpointName | None) -> Head:
        """Put ``name`` at the front of the lineage; None only claims the repository."""

        def change(found: Head | None) -> Head:
            self._check_own(found)
            if name is not None and found is not None and found.line[:1] == (str(name),):
                return found
            line, identity = self._line(found, name), self.place.next_identity(found)
            return Head(self.generation, self.writer, line, time.time(), identity)

        return compare_and_swap_head(self.place, change)

    def _line(self, found: Head | None, name: CheckpointName | None) -> tuple[str, ...]:
        line = current_lineage(self.place, found)
        if name is None:
            return line
        if self.parent is not None:
            line = lineage_from(self.place, line, self.parent)
        names = parse_names((str(name), *line))
        place = self.place
        kept = self.keep.retained(names, place.tagged(), place.deltas(), place.number)
        return tuple(str(name) for name in kept)

    def _check_own(self, found: Head | None) -> None:
        """Raise SupersededError if another writer has claimed the repository."""
        latest = self._latest_generation() if found is None else found.generation
        ours = found is None or found.writer == self.writer or not self.claimed
        if latest > self.generation:
            raise SupersededError(
                f"generation {self.generation} may not save in {self.place.uri}: generation "
                f"{latest} has taken over"
            )
        if not ours:
            raise SupersededError(
                f"another process of generation {self.generation} has taken over the "
                f"checkpoints in {self.place.uri}"
            )

    def _latest_generation(self) -> int:
        return max((name.generation for name in self.place.names()), default=self.generation)

    def _prune(self, head: Head) -> None:
        """Remove what HEAD does not name and no tag retains. Never fails.

        What a superseded writer is still saving goes too: it can commit nothing. HEAD is read after
        the names: a writer that has taken over since has begun none of them.
        """
        try:
            names = self.place.names()
            kept = {*head.line, *map(str, self.place.tagged())}
            if read_head(self.place) != head:
                return
        except CheckpointError:
            return
        self.place.remove_all(
            [n for n in names if str(n) not in kept and n.generation <= self.generation]
        )


class SupersededError(CheckpointError):
    """Another process, of a later generation or started later, now saves this job's state."""

    code = "superseded"

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="stop this process: its state is no longer the job's newest")
