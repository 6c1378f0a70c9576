"""The manifest of a checkpoint, and the documents, names and digests that it is made of.

The manifest is written last, so that its presence means the rest is there. A checkpoint's name is
its directory, which is written once and never reused. Each part is a file with the digests that
verify its bytes; a delta omits the chunks that its base also holds. ``Origin`` records the code,
data and torch version a checkpoint comes from. Documents detect their own damage: a line of
SHA-256, then a line of JSON.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from costopt.checkpoint.identity import JobIdentity
from costopt.domain.errors import MissingExtraError, install_hint

SCHEMA = 2
DELTA_SCHEMA = 3
"""The schema of a manifest with a delta."""
SHARDED_SCHEMA = 4
"""The schema of a manifest of a sharded checkpoint, and of the mark of one that was abandoned."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a checkpoint comes from, as far as it is known.

    ``code_revision`` is the Git revision of the working directory unless the environment says
    otherwise, ``data_revision`` a hash or a DVC or Git revision.
    """

    torch_version: str = ""
    code_revision: str | None = None
    data_revision: str | None = None
    policy: str | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a checkpoint; ``at`` is wall time in POSIX seconds.

    ``save_s`` is how long the save took up to the manifest. ``name`` is the checkpoint's own, empty
    before it is stored. ``parent`` is the checkpoint from which training continued, or None for a
    fresh start. ``labels`` are set by the trainer, such as a loss. ``parts`` are the whole state;
    ``delta`` says which chunks of them are stored elsewhere. A sharded checkpoint has no parts but
    ``shards``; its ``delta`` names the base alone, as the indexes of the ranks list the chunks.
    ``identity`` is the job that saved it, None if unknown.
    """

    step: int
    generation: int
    world_size: int
    parts: tuple[Part, ...]
    at: float
    save_s: float
    name: str = ""
    parent: str | None = None
    origin: Origin = Origin()
    labels: tuple[tuple[str, str], ...] = ()
    delta: Delta | None = None
    shards: ShardSet | None = None
    identity: JobIdentity | None = None

    def number(self, label: str) -> float | None:
        """Return the finite number in a label; None if there is none."""
        try:
            number = float(dict(self.labels)[label])
        except (KeyError, ValueError):
            return None
        return number if math.isfinite(number) else None

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all parts together."""
        shards = 0 if self.shards is None else self.shards.size_bytes
        return shards + sum(part.size_bytes for part in self.parts)

    @property
    def own_bytes(self) -> int:
        """Return the bytes stored in the checkpoint's own directory."""
        if self.shards is not None:
            return self.shards.own_bytes
        if self.delta is None:
            return self.size_bytes
        return sum(self.delta.changed_bytes(part) for part in self.parts)

    def encode(self) -> bytes:
        """Return the document to store."""
        # A program of before refuses a version that it does not know, rather than misread it.
        schema = SCHEMA if self.delta is None else DELTA_SCHEMA
        schema = schema if self.shards is None else SHARDED_SCHEMA
        optional = {"delta": self.delta, "shards": self.shards, "identity": self.identity}
        missing = {name for name, value in optional.items() if value is None}
        fields = {name: value for name, value in asdict(self).items() if name not in missing}
        return encode_with_digest({"schema": schema, **fields})

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """Return the manifest in a document. Raise ValueError saying what is wrong with it."""
        fields = decode_with_digest(data, "manifest")
        schema = fields.pop("schema", None)
        try:
            if schema == SHARDED_SCHEMA:
                fields["shards"] = _shards(fields)
            elif schema not in (SCHEMA, DELTA_SCHEMA):
                raise ValueError("the manifest has an unsupported version")
            if schema == DELTA_SCHEMA or "delta" in fields:
                fields["delta"] = _delta(fields["delta"])
            fields["parts"] = tuple(map(_part, fields["parts"]))
            fields["origin"] = Origin(**fields["origin"])
            fields["labels"] = tuple((str(k), str(v)) for k, v in fields["labels"])
            if "identity" in fields:
                fields["identity"] = JobIdentity.decode(fields["identity"])
            return cls(**fields)
        except (KeyError, TypeError) as error:
            raise ValueError(f"the manifest lacks a field: {error}") from error


def _delta(fields: Mapping[str, Any]) -> Delta:
    return Delta(
        fields["base"], tuple((name, tuple(numbers)) for name, numbers in fields["shared"])
    )


def _part(fields: Mapping[str, Any]) -> Part:
    return Part(**{**fields, "digests": tuple(fields["digests"])})


def _shards(fields: Mapping[str, Any]) -> ShardSet:
    if ABANDONED in fields:
        raise ValueError(f"the save was abandoned: {fields[ABANDONED]}")
    found = fields["shards"]
    return ShardSet(
        mesh=tuple((str(name), int(size)) for name, size in found["mesh"]),
        tensors=tuple(TensorSpec(n, d, tuple(shape)) for n, d, shape in found["tensors"]),
        indexes=tuple(map(_part, found["indexes"])),
        size_bytes=found["size_bytes"],
        own_bytes=found["own_bytes"],
    )


ABANDONED = "abandoned"


def encode_abandoned(reason: str) -> bytes:
    """Return the document that replaces the manifest of an abandoned save."""
    return encode_with_digest({"schema": SHARDED_SCHEMA, ABANDONED: reason})


class TensorSpec(NamedTuple):
    """A whole tensor of a sharded state; ``dtype`` as in "float32"."""

    name: str
    dtype: str
    shape: tuple[int, ...]


def shard_prefix(rank: int, token: str) -> str:
    """Return how the names of a rank's files begin; ``token`` is its gang's fencing token."""
    return f"r{rank:05d}-{token[:8]}-"


@dataclass(frozen=True, slots=True)
class ShardSet:
    """What the ranks of a gang wrote: each its own parts and the index of them.

    ``mesh`` are the dimensions over which the ranks were laid, in their order. ``indexes`` are the
    files of the ranks, in their order; each index vouches for its rank's other files.
    ``size_bytes`` are those of all of them, ``own_bytes`` those that are not stored in a base.
    """

    mesh: tuple[tuple[str, int], ...]
    tensors: tuple[TensorSpec, ...]
    indexes: tuple[Part, ...]
    size_bytes: int
    own_bytes: int


NAME = re.compile(r"step-(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, order=True)
class CheckpointName:
    """A checkpoint's name; the later of two is the greater one.

    The generation outranks the step: after a rollback the new lineage counts.
    """

    generation: int
    step: int
    attempt: int

    def __str__(self) -> str:
        return f"step-{self.step:09d}.{self.generation}.{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> CheckpointName | None:
        """Return the name in ``text``, or None if it is not the name of a checkpoint."""
        match = NAME.fullmatch(text)
        return None if match is None else cls(int(match[2]), int(match[1]), int(match[3]))


CHUNK_BYTES = 1 << 20
XXH3 = "xxh3_128"


@dataclass(frozen=True, slots=True)
class Part:
    """A file of a checkpoint's state.

    ``digests`` are those of its chunks of ``chunk_bytes`` in order, the last one shorter.
    """

    name: str
    size_bytes: int
    chunk_bytes: int
    digests: tuple[str, ...]
    algorithm: str = XXH3

    @classmethod
    def of(cls, name: str, data: memoryview, chunk_bytes: int = CHUNK_BYTES) -> Part:
        """Describe ``data`` by XXH3 (128 bits): 10 GB/s, against damage and not against forgery."""
        digests = tuple(
            compute_digest(XXH3, data[begin : begin + chunk_bytes])
            for begin in range(0, len(data), chunk_bytes)
        )
        return cls(name, len(data), chunk_bytes, digests)

    @property
    def spans(self) -> tuple[slice, ...]:
        """Return where each chunk is in the part."""
        begins = range(0, self.size_bytes, self.chunk_bytes)
        return tuple(slice(b, min(b + self.chunk_bytes, self.size_bytes)) for b in begins)

    def same_chunks(self, other: Part) -> tuple[int, ...]:
        """Return the numbers of the chunks that have the same bytes in ``other``."""
        if (self.name, self.size_bytes, self.chunk_bytes, self.algorithm) != (
            other.name,
            other.size_bytes,
            other.chunk_bytes,
            other.algorithm,
        ):
            return ()
        pairs = zip(self.digests, other.digests, strict=False)
        return tuple(number for number, (ours, theirs) in enumerate(pairs) if ours == theirs)

    def check(self, data: memoryview, only: Collection[int] | None = None) -> None:
        """Raise ValueError saying where ``data`` differs from what was saved.

        Checks all its chunks, or ``only`` these.
        """
        if len(data) != self.size_bytes:
            raise ValueError(f"{self.name} has {len(data)} bytes, not {self.size_bytes}")
        spans = self.spans
        if len(self.digests) != len(spans):
            raise ValueError(f"the manifest lacks digests of {self.name}")
        for number, (span, digest) in enumerate(zip(spans, self.digests, strict=True)):
            if only is not None and number not in only:
                continue
            if compute_digest(self.algorithm, data[span]) != digest:
                raise ValueError(
                    f"{self.name} is damaged between bytes {span.start} and {span.stop}"
                )


def compute_digest(algorithm: str, *data: memoryview) -> str:
    """Return the digest of pieces, one after the other, in hexadecimal.

    Raise ValueError for an algorithm that is not known.
    """
    if algorithm != XXH3:
        raise ValueError(f"this version does not support digests by {algorithm}")
    try:
        import xxhash
    except ImportError as error:
        raise MissingExtraError(
            "checkpoints are verified with xxhash, which is not installed",
            hint=install_hint("train"),
        ) from error
    digest = xxhash.xxh3_128()
    for piece in data:
        digest.update(piece)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Delta:
    """The chunks that a checkpoint shares with its base.

    ``base`` is a full checkpoint in the same repository and has a tag for as long as it is needed.
    ``shared`` lists, for each part that has any, the numbers of the chunks that are stored in the
    base, in a part of the same name and size. The other chunks are in the checkpoint's own file, in
    order; there is no file if there are none.
    """

    base: str
    shared: tuple[tuple[str, tuple[int, ...]], ...]

    def shared_chunks(self, part: Part) -> frozenset[int]:
        """Return the numbers of the part's chunks that are stored in the base."""
        return frozenset(dict(self.shared).get(part.name, ()))

    def changed_bytes(self, part: Part) -> int:
        """Return how many bytes of the part are not stored in the base."""
        shared = self.shared_chunks(part)
        return sum(shared_bytes(span) for n, span in enumerate(part.spans) if n not in shared)


def changed_chunks(part: Part, data: memoryview, shared: Collection[int]) -> bytes:
    """Return the file of a part without the chunks that its base holds."""
    return b"".join(data[span] for n, span in enumerate(part.spans) if n not in shared)


def merge_chunks(part: Part, own: bytes, base: bytes, shared: Collection[int]) -> bytes:
    """Return the bytes of a part, not verified yet: the inverse of ``changed_chunks``.

    Surplus bytes of ``own`` are appended.
    """
    rest, kept = memoryview(own), memoryview(base)
    pieces = []
    for number, span in enumerate(part.spans):
        if number in shared:
            pieces.append(kept[span])
        else:
            pieces.append(rest[: shared_bytes(span)])
            rest = rest[shared_bytes(span) :]
    return b"".join((*pieces, rest))


def shared_bytes(span: slice) -> int:
    """Return how many bytes the slice covers."""
    return int(span.stop - span.start)


CODE_REVISION = "COSTOPT_CODE_REVISION"
DATA_REVISION = "COSTOPT_DATA_REVISION"
POLICY = "COSTOPT_POLICY"
GIT = (
    "git",
    "-c",
    "core.fsmonitor=false",
    "describe",
    "--always",
    "--dirty",
    "--abbrev=40",
    "--exclude=*",
)
GIT_TIMEOUT_S = 10.0


def detect_origin(torch_version: str, variables: Mapping[str, str] = os.environ) -> Origin:
    """Return the origin from the environment; without it, the code's revision from Git."""
    return Origin(
        torch_version=torch_version,
        code_revision=variables.get(CODE_REVISION) or git_revision(),
        data_revision=variables.get(DATA_REVISION) or None,
        policy=variables.get(POLICY) or None,
    )


def git_revision(folder: Path | None = None) -> str | None:
    """Return the commit of ``folder``, by default the working directory; "-dirty" if files differ.

    Return None outside of a repository.
    """
    try:
        found = subprocess.run(  # noqa: S603
            GIT, cwd=folder, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None if found.returncode == 0 else None


def encode_with_digest(fields: Mapping[str, Any]) -> bytes:
    """Return the document; the same fields give the same bytes."""
    body = json.dumps(fields, sort_keys=True).encode()
    return _sealed_digest(body) + b"\n" + body + b"\n"


def decode_with_digest(data: bytes, what: str) -> dict[str, Any]:
    """Return the fields. Raise ValueError, naming ``what``, if it was cut short or altered."""
    checksum, _, body = data.partition(b"\n")
    if body[-1:] != b"\n" or _sealed_digest(body[:-1]) != checksum:
        raise ValueError(f"the {what} does not match its own checksum")
    fields = json.loads(body)
    if not isinstance(fields, dict):
        raise ValueError(f"the {what} is not a JSON object")
    return fields


def _sealed_digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()
