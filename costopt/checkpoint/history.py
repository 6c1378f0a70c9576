"""The checkpoints of a job as a history: list, verify, tag, roll back, branch and prune them.

Usable without torch, beside a trainer that saves at the same time. ``RetentionPolicy`` says which
checkpoints are kept.
"""

from __future__ import annotations

import operator
import re
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from costopt.checkpoint.identity import JobIdentity
from costopt.checkpoint.lineage import (
    compare_and_swap_head,
    current_lineage,
    lineage_from,
    parse_names,
    read_head,
)
from costopt.checkpoint.manifest import CheckpointName, Manifest, Part
from costopt.checkpoint.repository import (
    BASE_TAG_PREFIX,
    MANIFEST,
    TAGS,
    CheckpointRepository,
    Head,
    base_tag,
    checkpoint_errors,
)
from costopt.domain.errors import CheckpointError

COLD_DAYS = 30
"""The minimum duration of S3 Standard-IA, from when objects are moved there, and of GCS Nearline,
to which their time in the class before counts.

https://docs.aws.amazon.com/AmazonS3/latest/userguide/storage-class-intro.html
https://docs.cloud.google.com/storage/docs/lifecycle#setstorageclass-cost
"""
SECONDS_PER_DAY = 86_400
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A checkpoint as it is listed: its parts are not read.

    ``problem`` says why it cannot be restored; ``manifest`` is then None. ``in_line``: it belongs
    to the lineage, so that a restore would try it eventually. ``is_newest``: a restore tries it
    first.
    """

    name: str
    uri: str
    manifest: Manifest | None
    problem: str | None
    tags: tuple[str, ...]
    in_line: bool
    is_newest: bool


class CheckpointHistory:
    """A job's checkpoints. Every method raises CheckpointError: not found, or the store refuses.

    A checkpoint is given by its name or by one of its tags.
    """

    def __init__(self, place: CheckpointRepository) -> None:
        self.place = place

    @classmethod
    def open(cls, uri: str, identity: JobIdentity | None = None) -> CheckpointHistory:
        """Open a path, file://, s3:// or gs://."""
        return cls(CheckpointRepository.open(uri, identity))

    def list(self) -> tuple[HistoryEntry, ...]:
        """Return every checkpoint, valid or not, the newest first."""
        line = current_lineage(self.place, read_head(self.place))
        tags = self.place.tags()
        return tuple(self._entry(name, line, tags) for name in self.place.names())

    def resolve(self, checkpoint: str) -> CheckpointName:
        """Return the name that ``checkpoint`` is, or that it tags, without reading its contents."""
        name = CheckpointName.parse(checkpoint)
        if name is None and TAG.fullmatch(checkpoint):
            with checkpoint_errors():
                tagged = self.place.store.get(TAGS + checkpoint)
            name = None if tagged is None else CheckpointName.parse(tagged.decode(errors="replace"))
        if name is None:
            raise CheckpointError(
                f"{checkpoint!r} is neither a checkpoint nor a tag in {self.place.uri}",
                hint="`list` shows the names and tags",
            )
        return name

    def verify(self, checkpoint: str) -> str | None:
        """Read a whole checkpoint; return what is wrong with it, or None if every byte is right."""
        return self._problem(self.resolve(checkpoint))

    def _problem(self, parsed: CheckpointName) -> str | None:
        try:
            manifest = self.place.manifest(parsed)
            for part, delta in self.place.files(parsed, manifest):
                self.place.read(parsed, part, delta)
        except ValueError as error:
            return str(error)
        return None

    def tag(self, checkpoint: str, tag: str) -> None:
        """Tag a checkpoint, which retains it. A tag that another checkpoint has is not moved."""
        if not TAG.fullmatch(tag):
            raise CheckpointError(
                f"{tag!r} is not a valid tag",
                hint="use letters, digits, '.', '-' and '_', 100 at most",
                code="not_a_tag",
            )
        if CheckpointName.parse(tag) is not None:
            raise CheckpointError(
                f"{tag} is the name of a checkpoint, so it cannot be a tag", hint="use another tag"
            )
        name = self.resolve(checkpoint)
        self._check_manifest(name)
        data = str(name).encode()
        with checkpoint_errors():
            taken = not self.place.store.put_if_absent(TAGS + tag, data)
            if taken and self.place.store.get(TAGS + tag) != data:
                raise CheckpointError(
                    f"another checkpoint in {self.place.uri} is tagged {tag}",
                    hint="remove that tag first, or use another",
                    code="duplicate",
                )

    def untag(self, tag: str) -> None:
        """Remove a tag; a missing one is not an error. A base's tag goes with its delta."""
        if any(tag == base_tag(name) for name in self.place.names()):
            raise CheckpointError(
                f"the delta {tag.removeprefix(BASE_TAG_PREFIX)} in {self.place.uri} needs its base",
                hint="the tag goes when the delta is pruned",
                code="needs_base",
            )
        with checkpoint_errors():
            self.place.store.delete(TAGS + tag)

    def rollback(self, checkpoint: str) -> Head:
        """Make an older checkpoint the one from which training continues, under a new generation.

        A running trainer is superseded: its next save fails, and its next incarnation begins here.
        The previous newest checkpoint keeps the tag ``before-rollback-<generation>``.
        """
        parsed = self.resolve(checkpoint)
        name = str(parsed)
        problem = self._problem(parsed)
        if problem is not None:
            raise CheckpointError(
                f"cannot roll back to checkpoint {name} in {self.place.uri}: {problem}",
                hint="choose another that `list` shows without a problem",
                code="damaged",
            )
        head = read_head(self.place)
        before = current_lineage(self.place, head)
        latest = max(parsed.generation, 0 if head is None else head.generation)
        if before and before[0] != name:
            self.tag(before[0], f"before-rollback-{latest + 1}")
        writer = uuid.uuid4().hex

        def change(found: Head | None) -> Head:
            line = lineage_from(self.place, current_lineage(self.place, found), name)
            last = latest if found is None else max(latest, found.generation)
            return Head(last + 1, writer, line, time.time(), self.place.next_identity(found))

        return compare_and_swap_head(self.place, change)

    def branch(
        self, checkpoint: str, uri: str, identity: JobIdentity | None = None
    ) -> CheckpointRepository:
        """Copy a checkpoint to an empty repository, as its first one.

        A delta becomes a full checkpoint. The copy is that of the job ``identity``; None: of the
        first job that saves there.
        """
        parsed = self.resolve(checkpoint)
        name = str(parsed)
        target = CheckpointRepository.open(uri, identity)
        if target.names() or read_head(target) is not None:
            raise CheckpointError(
                f"{target.uri} holds checkpoints already",
                hint="branch to an empty folder or prefix",
                code="not_empty",
            )
        try:
            manifest = self.place.manifest(parsed)
            for part, delta in self.place.files(parsed, manifest):
                data = self.place.read(parsed, part, delta)
                with checkpoint_errors():
                    target.store.put(f"{name}/{part.name}", data)
            manifest = self._without_base(target, parsed, manifest)
            manifest = replace(manifest, identity=identity)
        except ValueError as error:
            raise CheckpointError(
                f"cannot branch from checkpoint {name} in {self.place.uri}: {error}"
            ) from error
        with checkpoint_errors():
            target.store.put(f"{name}/{MANIFEST}", manifest.encode())
        head = Head(parsed.generation, uuid.uuid4().hex, (name,), time.time(), identity)
        compare_and_swap_head(target, lambda _: head)
        return target

    def _without_base(
        self, target: CheckpointRepository, name: CheckpointName, manifest: Manifest
    ) -> Manifest:
        """Return the manifest of a copy that holds all chunks; put the indexes that say so."""
        shards = manifest.shards
        if manifest.delta is None or shards is None:
            return replace(manifest, delta=None)
        indexes = []
        for part, index in zip(shards.indexes, self.place.indexes(name, shards), strict=True):
            data = replace(index, delta=None).encode()
            with checkpoint_errors():
                target.store.put(f"{name}/{part.name}", data)
            indexes.append(Part.of(part.name, memoryview(data), part.chunk_bytes))
        size_bytes = shards.size_bytes + sum(
            new.size_bytes - old.size_bytes
            for new, old in zip(indexes, shards.indexes, strict=True)
        )
        whole = replace(shards, indexes=tuple(indexes), size_bytes=size_bytes, own_bytes=size_bytes)
        return replace(manifest, delta=None, shards=whole)

    def prune(
        self, rule: RetentionPolicy, *, apply: bool, cold_after_days: int | None = None
    ) -> tuple[str, ...]:
        """Return the checkpoints that ``rule`` does not retain; with ``apply``, remove them.

        Incomplete saves are removed as well, except one that may still be in progress. Where the
        bucket moves parts to a cold class ``cold_after_days`` after they were written, those whose
        minimum duration there is not over stay: it is charged also if they are removed.
        """
        names = self.place.names()
        head = read_head(self.place)
        line = parse_names(current_lineage(self.place, head))
        # After HEAD: the bases of all deltas that it names are tagged by then.
        tagged = self.place.tagged()
        kept = rule.retained(line, tagged, self.place.deltas(), self.place.number)
        prunable = [name for name in names if name not in kept and name not in tagged]
        latest = 0 if head is None else head.generation
        if kept:
            prunable = [name for name in prunable if name < kept[0] or name.generation < latest]
        if cold_after_days is not None:
            prunable = [
                name for name in prunable if not self._is_paid_anyway(name, cold_after_days)
            ]
        if apply and prunable:
            # HEAD drops them first: it must not name a checkpoint that is partly removed.
            gone = {str(name) for name in prunable}
            compare_and_swap_head(self.place, lambda found: _without(found, gone))
            self.place.remove_all(prunable)
        return tuple(str(name) for name in prunable)

    def _is_paid_anyway(self, name: CheckpointName, cold_after_days: int) -> bool:
        """Whether a checkpoint is in a cold class, whose minimum duration is not over."""
        end_days = cold_after_days + COLD_DAYS if self.place.uri.startswith("s3:") else COLD_DAYS
        try:
            age_days = (time.time() - self.place.manifest(name).at) / SECONDS_PER_DAY
        except ValueError:
            return False
        return cold_after_days <= age_days < end_days

    def _entry(
        self, name: CheckpointName, line: tuple[str, ...], tags: dict[str, str]
    ) -> HistoryEntry:
        manifest, problem = None, None
        try:
            manifest = self.place.manifest(name)
        except ValueError as error:
            problem = str(error)
        return HistoryEntry(
            name=str(name),
            uri=self.place.path(name),
            manifest=manifest,
            problem=problem,
            tags=tuple(sorted(tag for tag, tagged in tags.items() if tagged == str(name))),
            in_line=str(name) in line,
            is_newest=line[:1] == (str(name),),
        )

    def _check_manifest(self, name: CheckpointName) -> None:
        try:
            self.place.manifest(name)
        except ValueError as error:
            raise CheckpointError(f"checkpoint {name} in {self.place.uri}: {error}") from error


def _without(found: Head | None, gone: set[str]) -> Head:
    if found is None:
        raise CheckpointError(
            "HEAD is missing or damaged, so nothing is removed", hint="roll back to a checkpoint"
        )
    line = tuple(name for name in found.line if name not in gone)
    return found if line == found.line else replace(found, line=line)


LOSS = "loss"
"""The label in which a training loop reports the loss of its last step."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Retains the ``last`` newest checkpoints, with the deltas among them, and selected older ones.

    Retained are also every checkpoint at a multiple of ``every_steps``, the ``best`` with the
    lowest ``metric``, and all that are tagged. ``every_steps`` None retains no milestones, ``best``
    0 none by metric. ``metric`` is a label of checkpoints; one without a number there is never
    among the best. A delta does not count as one of the ``last``, since it is lost together with
    its base.
    """

    last: int = 3
    every_steps: int | None = None
    best: int = 0
    metric: str = LOSS

    def __post_init__(self) -> None:
        if self.last < 1:
            raise ValueError(f"keep={self.last}: at least one checkpoint must be retained")
        if self.every_steps is not None and self.every_steps < 1:
            raise ValueError(f"every_steps={self.every_steps}: must be at least 1")
        if self.best < 0:
            raise ValueError(f"best={self.best}: must not be negative")

    @classmethod
    def of(cls, keep: int | RetentionPolicy) -> RetentionPolicy:
        """Return the policy, which for a number retains as many of the newest checkpoints."""
        return keep if isinstance(keep, RetentionPolicy) else cls(operator.index(keep))

    def retained(
        self,
        line: Sequence[CheckpointName],
        tagged: Collection[CheckpointName],
        deltas: Collection[CheckpointName],
        number: Callable[[CheckpointName, str], float | None],
    ) -> tuple[CheckpointName, ...]:
        """Return those of ``line`` (the newest first) that are retained, in the same order.

        ``number`` returns the number in a label of a checkpoint; it is called if ``best`` is
        positive.
        """
        best = self._best(line, number) if self.best else ()
        last = self._last(line, deltas)
        return tuple(
            name
            for place, name in enumerate(line)
            if place < last or name in tagged or name in best or self._is_milestone(name)
        )

    def _last(self, line: Sequence[CheckpointName], deltas: Collection[CheckpointName]) -> int:
        """Return how many the ``last`` are, with the deltas that come before the oldest of them."""
        whole = [place for place, name in enumerate(line, start=1) if name not in deltas]
        return whole[self.last - 1] if len(whole) >= self.last else len(line)

    def _best(
        self, line: Sequence[CheckpointName], number: Callable[[CheckpointName, str], float | None]
    ) -> list[CheckpointName]:
        """Of equals, the newest counts."""
        found = {name: number(name, self.metric) for name in line}
        scored = {name: value for name, value in found.items() if value is not None}
        return sorted(scored, key=lambda name: scored[name])[: self.best]

    def _is_milestone(self, name: CheckpointName) -> bool:
        return self.every_steps is not None and name.step % self.every_steps == 0
