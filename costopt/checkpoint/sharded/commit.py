"""Commits sharded checkpoints: every rank writes its own files, and the store is the meeting place.

Each rank makes its files durable and then its index. Rank 0, or after ``takeover_s`` the next that
still runs, reads all indexes, sees that they are of this save and tile every tensor, writes the
manifest and moves HEAD. The manifest's key decides: what is put there first, a manifest or the mark
of an abandoned save, holds for all ranks. The indexes determine the manifest, so that it has the
same bytes from any rank.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace

from costopt.checkpoint.commit import CommitResult, Committer, SaveRequest, SupersededError
from costopt.checkpoint.lineage import read_head
from costopt.checkpoint.manifest import (
    CheckpointName,
    Delta,
    Manifest,
    Origin,
    Part,
    ShardSet,
    TensorSpec,
    encode_abandoned,
    shard_prefix,
)
from costopt.checkpoint.repository import (
    MANIFEST,
    MAX_CONCURRENT_INDEXES,
    WRITER,
    Head,
    checkpoint_errors,
)
from costopt.checkpoint.sharded.index import SHARD_CHUNK_BYTES, SaveIdentity, ShardIndex
from costopt.domain.errors import CheckpointError

OBJECTS = "objects.pt"
INDEX = "index"
FIRST_POLL_S = 0.02
MAX_POLL_S = 0.5
DEFAULT_TIMEOUT_S = 300.0
DEFAULT_TAKEOVER_S = 10.0


@dataclass(frozen=True, slots=True)
class ShardGroup:
    """The ranks that save together, as all of them know it.

    ``token`` is the fencing token that HEAD holds as its writer; ``attempt`` is in the names of all
    that they save, and no other gang's. After ``timeout_s`` without a rank's index the save is
    abandoned; after ``takeover_s`` times its number a rank commits what rank 0 has not.
    """

    token: str
    attempt: int
    rank: int
    world_size: int
    mesh: tuple[tuple[str, int], ...] = ()
    timeout_s: float = DEFAULT_TIMEOUT_S
    takeover_s: float = DEFAULT_TAKEOVER_S

    def prefix(self, rank: int) -> str:
        """Return how the names of a rank's files begin: a gang that wakes overwrites nothing."""
        return shard_prefix(rank, self.token)


@dataclass(slots=True)
class ShardCommitter(Committer):
    """Commits one rank's part of the saves of a gang that has claimed the repository."""

    gang: ShardGroup = field(default_factory=lambda: ShardGroup("", 0, 0, 1))
    _tiled: tuple[tuple[bytes, int], ...] = ()
    """The layouts that were last seen to tile every tensor; those of a gang seldom change."""
    _tensors: tuple[TensorSpec, ...] = ()
    _whole: tuple[str, tuple[Part, ...]] = ("", ())
    """The newest checkpoint that all ranks wrote in full, and this rank's files in it."""

    def commit(self, saving: SaveRequest) -> CommitResult:
        """Write this rank's part of a save, and return once the whole is the newest checkpoint.

        ``saving.layout`` is that of its tensors. Raise CheckpointError: superseded, abandoned by
        any rank, or the store refuses. HEAD then names what it named before, or, where the store
        failed, may name this one after all.
        """
        name = CheckpointName(self.generation, saving.step, self.gang.attempt)
        base = self._whole if saving.as_delta else ("", ())
        # Until the outcome is known, no later save may build on what other ranks may not.
        self._whole = ("", ())
        found = read_head(self.place)
        self._check_own(found)
        self._follow(found)
        try:
            parts = () if self._take(name) else self._write_shard(name, saving, base)
        except CheckpointError as error:
            self._abandon(name, f"rank {self.gang.rank}: {error.message}")
            raise
        manifest = self._decision(name)
        self._await_head(name)
        self.parent = str(name)
        self._whole = (str(name), parts) if manifest.delta is None else base
        return CommitResult(name, manifest, time.monotonic() - saving.began_at)

    def _follow(self, head: Head | None) -> None:
        """Continue from what this gang committed last, which this rank may not have seen."""
        newest = CheckpointName.parse(head.line[0]) if head is not None and head.line else None
        if newest is not None and newest.attempt == self.gang.attempt:
            self.parent = str(newest)

    def _take(self, name: CheckpointName) -> bool:
        """Take the name for this gang; return whether the gang has committed this step before.

        Raise CheckpointError if it was abandoned, or another gang took the name.
        """
        key, mark = f"{name}/{WRITER}", self.gang.token.encode()
        with checkpoint_errors():
            if not self.place.store.put_if_absent(key, mark) and self.place.store.get(key) != mark:
                raise CheckpointError(
                    f"{self.place.path(name)} was begun by another gang",
                    hint="let only one gang at a time save there",
                )
            decided = self.place.store.get(f"{name}/{MANIFEST}")
        if decided is not None:
            self._decode(name, decided)
        return decided is not None

    def _write_shard(
        self,
        name: CheckpointName,
        saving: SaveRequest,
        base: tuple[str, tuple[Part, ...]] = ("", ()),
    ) -> tuple[Part, ...]:
        """Write this rank's files and their index, without what its files in ``base`` hold."""
        prefix = self.gang.prefix(self.gang.rank)
        files = {prefix + file_name: data for file_name, data in saving.files.items()}
        # HEAD retains the base: no later checkpoint is whole, and the gang continues from it.
        parts, delta = self._write_parts(name, files, *base)
        if delta is not None:
            self.place.pin_base(name, delta.base)
        return self._write_index(name, saving, parts, delta)

    def commit_stream(
        self, saving: SaveRequest, parts: Iterable[bytes], layout: Callable[[], bytes]
    ) -> CommitResult:
        """Commit as ``commit`` does, with tensors that come in parts of a file each.

        ``layout`` is called once all have come. Nothing is left of what raises an error.
        """
        name = CheckpointName(self.generation, saving.step, self.gang.attempt)
        self._take(name)
        prefix = self.gang.prefix(self.gang.rank)
        try:
            files = {prefix + key: data for key, data in saving.files.items()}
            written, _ = self._write_parts(name, files)
            for number, data in enumerate(parts):
                key = f"{prefix}tensors-{number:05d}.bin"
                part = Part.of(key, memoryview(data), self.chunk_bytes)
                with checkpoint_errors():
                    self.place.store.put(f"{name}/{key}", data)
                written = (*written, part)
            self._write_index(name, replace(saving, layout=layout()), written, None)
        except CheckpointError:
            self.place.remove_all([name])
            raise
        manifest = self._decision(name)
        self._await_head(name)
        return CommitResult(name, manifest, time.monotonic() - saving.began_at)

    def _write_index(
        self,
        name: CheckpointName,
        saving: SaveRequest,
        parts: tuple[Part, ...],
        delta: Delta | None,
    ) -> tuple[Part, ...]:
        index = self.index(saving, parts, delta)
        with checkpoint_errors():
            self.place.store.put(
                f"{name}/{self.gang.prefix(self.gang.rank)}{INDEX}", index.encode()
            )
        return parts

    def index(
        self, saving: SaveRequest, parts: tuple[Part, ...], delta: Delta | None
    ) -> ShardIndex:
        """Return the index of this rank's files of a save."""
        objects = self.gang.prefix(self.gang.rank) + OBJECTS
        began_at = time.time() - (time.monotonic() - saving.began_at)
        return ShardIndex(
            SaveIdentity(
                step=saving.step,
                generation=self.generation,
                gang=self.gang.token,
                rank=self.gang.rank,
                world_size=self.gang.world_size,
                began_at=began_at,
                at=time.time(),
                parent=self.parent,
                origin=asdict(self.origin),
                labels=saving.labels,
            ),
            saving.layout,
            next(part for part in parts if part.name == objects),
            tuple(part for part in parts if part.name != objects),
            delta,
        )

    def _decision(self, name: CheckpointName) -> Manifest:
        """Wait until the save is committed or abandoned; commit it when it is this rank's turn."""
        since, pause = time.monotonic(), FIRST_POLL_S
        while True:
            with checkpoint_errors():
                decided = self.place.store.get(f"{name}/{MANIFEST}")
            if decided is not None:
                break
            waited = time.monotonic() - since
            missing = self._missing(name) if self._is_turn(waited) else None
            if missing == []:
                self._check_own(read_head(self.place))
                self._put_manifest(name)
                continue
            if waited > self.gang.timeout_s:
                late = ", ".join(map(str, self._missing(name))) or "no rank could commit it"
                self._abandon(name, f"no files within {self.gang.timeout_s:.0f} s of rank {late}")
                continue
            if pause == MAX_POLL_S:
                self._check_own(read_head(self.place))
            time.sleep(pause)
            pause = min(pause * 1.5, MAX_POLL_S)
        return self._decode(name, decided)

    def _decode(self, name: CheckpointName, decided: bytes) -> Manifest:
        try:
            return Manifest.decode(decided)
        except ValueError as error:
            self._remove_own(name)
            raise CheckpointError(
                f"{self.place.path(name)}: {error}", hint="earlier checkpoints remain"
            ) from error

    def _is_turn(self, waited_s: float) -> bool:
        return waited_s >= self.gang.rank * self.gang.takeover_s

    def _missing(self, name: CheckpointName) -> list[int]:
        there = self._stored_keys(name)
        ranks = range(self.gang.world_size)
        return [r for r in ranks if f"{name}/{self.gang.prefix(r)}{INDEX}" not in there]

    def _stored_keys(self, name: CheckpointName) -> set[str]:
        with checkpoint_errors():
            return set(self.place.store.keys(f"{name}/"))

    def _put_manifest(self, name: CheckpointName) -> None:
        """Commit, or abandon what is not whole. The first decision in the store holds."""
        try:
            manifest = self._assemble(name)
        except ValueError as error:
            self._abandon(name, str(error))
            return
        with checkpoint_errors():
            self.place.store.put_if_absent(f"{name}/{MANIFEST}", manifest.encode())

    def _assemble(self, name: CheckpointName) -> Manifest:
        """Return the manifest that the indexes make. Raise ValueError if they make none."""

        def read(rank: int) -> tuple[Part, ShardIndex]:
            file_name = f"{self.gang.prefix(rank)}{INDEX}"
            with checkpoint_errors():
                data = self.place.store.get(f"{name}/{file_name}")
            if data is None:
                raise ValueError(f"rank {rank}: its index is gone")
            try:
                index = ShardIndex.decode(data)
            except ValueError as error:
                raise ValueError(f"rank {rank}: {error}") from error
            return Part.of(file_name, memoryview(data), SHARD_CHUNK_BYTES), index

        with ThreadPoolExecutor(MAX_CONCURRENT_INDEXES) as pool:
            found = list(pool.map(read, range(self.gang.world_size)))
        indexes = [index for _, index in found]
        for rank, index in enumerate(indexes):
            own = index.identity
            here = (name.step, name.generation, self.gang.token, rank, self.gang.world_size)
            if (own.step, own.generation, own.gang, own.rank, own.world_size) != here:
                raise ValueError(f"rank {rank}: its index is of another save")
        delta = self._whole_delta(name, indexes)
        first = indexes[0].identity
        at = max(index.identity.at for index in indexes)
        return Manifest(
            step=name.step,
            generation=name.generation,
            world_size=self.gang.world_size,
            parts=(),
            at=at,
            save_s=at - min(index.identity.began_at for index in indexes),
            name=str(name),
            parent=first.parent,
            origin=Origin(**first.origin),
            labels=first.labels,
            delta=delta,
            identity=self.place.identity,
            shards=ShardSet(
                mesh=self.gang.mesh,
                tensors=self._whole_tensors(indexes),
                indexes=tuple(part for part, _ in found),
                size_bytes=sum(
                    part.size_bytes + sum(each.size_bytes for each in index.parts)
                    for part, index in found
                ),
                own_bytes=sum(part.size_bytes + index.own_bytes for part, index in found),
            ),
        )

    def _whole_delta(self, name: CheckpointName, indexes: list[ShardIndex]) -> Delta | None:
        """Return the base of the ranks' deltas, None if they wrote everything.

        Raise ValueError if a file is missing, or if they have several bases.
        """
        there = self._stored_keys(name)
        for rank, index in enumerate(indexes):
            for part in index.parts:
                shared = () if index.delta is None else index.delta.shared_chunks(part)
                if len(shared) < len(part.digests) and f"{name}/{part.name}" not in there:
                    raise ValueError(f"rank {rank}: {part.name} is missing")
        bases = {index.delta.base for index in indexes if index.delta is not None}
        if len(bases) > 1:
            raise ValueError(f"its ranks have several bases: {', '.join(sorted(bases))}")
        return Delta(bases.pop(), ()) if bases else None

    def _whole_tensors(self, indexes: list[ShardIndex]) -> tuple[TensorSpec, ...]:
        streams = [sum(part.size_bytes for part in index.tensors) for index in indexes]
        seen = tuple(
            (index.layout_data, stream) for index, stream in zip(indexes, streams, strict=True)
        )
        if seen != self._tiled:
            from costopt.checkpoint.sharded.tiling import all_tensors, incomplete_reason

            reason = incomplete_reason([index.layout_data for index in indexes], streams)
            if reason is not None:
                raise ValueError(reason)
            self._tiled, self._tensors = seen, all_tensors(indexes)
        return self._tensors

    def _await_head(self, name: CheckpointName) -> None:
        """Wait until HEAD names the checkpoint; move it when it is this rank's turn.

        Nothing is removed where another gang has taken over: it may continue from this checkpoint.
        """
        since, pause = time.monotonic(), FIRST_POLL_S
        while True:
            head = read_head(self.place)
            if head is not None and str(name) in head.line:
                return
            self._check_own(head)
            if self._is_turn(time.monotonic() - since):
                # Another rank may move it meanwhile, and a gang take over: then HEAD is read again.
                with suppress(SupersededError):
                    self._prune(self._move_head(name))
                continue
            time.sleep(pause)
            pause = min(pause * 1.5, MAX_POLL_S)

    def _prune(self, head: Head) -> None:
        """Remove what HEAD does not name and no tag retains, but nothing that ranks of this gang
        may have begun since. Never fails.
        """
        newest = CheckpointName.parse(head.line[0])
        try:
            names = [name for name in self.place.names() if newest is None or name < newest]
            kept = {*head.line, *map(str, self.place.tagged())}
            if read_head(self.place) != head:
                return
        except CheckpointError:
            return
        self.place.remove_all([name for name in names if str(name) not in kept])

    def abandon(self, steps: Iterable[int]) -> None:
        """Decide against saves of which this rank's part was lost, unless they are decided."""
        for step in steps:
            name = CheckpointName(self.generation, step, self.gang.attempt)
            self._abandon(name, f"rank {self.gang.rank}: its part was lost")

    def _abandon(self, name: CheckpointName, reason: str) -> None:
        """Decide against the save, unless it is decided. Never fails: a silent rank is missed."""
        with suppress(CheckpointError), checkpoint_errors():
            self.place.store.put_if_absent(f"{name}/{MANIFEST}", encode_abandoned(reason))
            decided = self.place.store.get(f"{name}/{MANIFEST}")
            if decided == encode_abandoned(reason):
                self._remove_own(name)

    def _remove_own(self, name: CheckpointName) -> None:
        """Free the space of an abandoned save. The mark stays, so that no rank can commit it."""
        with suppress(CheckpointError), checkpoint_errors():
            for key in self.place.store.keys(f"{name}/{self.gang.prefix(self.gang.rank)}"):
                self.place.store.delete(key)
