"""Manifest, Part, Delta, provenance, sealed documents.

What a checkpoint consists of: written last, so that its presence means the rest is there.

What a checkpoint is called: its directory, which is written once and never used again.

A file of a checkpoint, and the digests by which its bytes are known again.

What a checkpoint leaves out because another one, its base, holds the same bytes.

What code, data and policy a checkpoint comes from.

Small documents that know when they are damaged: a line of SHA-256, then a line of JSON.
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
from typing import Any

from costopt.domain.errors import MissingExtraError, install_hint

SCHEMA = 2
DELTA_SCHEMA = 3
"""Of a manifest with a delta."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What a checkpoint is a result of, as far as it is known.

    ``code_revision`` is Git's of the working directory unless the environment says otherwise,
    ``data_revision`` a hash or a DVC or Git revision.
    """

    torch_version: str = ""
    code_revision: str | None = None
    data_revision: str | None = None
    policy: str | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """``at`` is wall time in POSIX seconds, ``save_s`` how long the save took up to here.

    ``name`` is the checkpoint's own, empty before the store has one. ``parent`` is the
    checkpoint that training went on from, or None for a fresh start. ``labels`` are the trainer's
    own words for it, such as a loss. ``parts`` are the whole state, of which ``delta`` says what
    lies elsewhere.
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

    def number(self, label: str) -> float | None:
        """The finite number in a label; None where there is none."""
        try:
            number = float(dict(self.labels)[label])
        except (KeyError, ValueError):
            return None
        return number if math.isfinite(number) else None

    @property
    def size_bytes(self) -> int:
        """Bytes of all parts together."""
        return sum(part.size_bytes for part in self.parts)

    @property
    def own_bytes(self) -> int:
        """Bytes that lie in its own directory."""
        if self.delta is None:
            return self.size_bytes
        return sum(self.delta.changed_bytes(part) for part in self.parts)

    def encode(self) -> bytes:
        """The document that is stored."""
        fields = asdict(self)
        if self.delta is not None:
            return encode_with_digest({"schema": DELTA_SCHEMA, **fields})
        del fields["delta"]
        return encode_with_digest({"schema": SCHEMA, **fields})

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """The inverse; raises ValueError saying what is wrong."""
        fields = decode_with_digest(data, "manifest")
        schema = fields.pop("schema", None)
        try:
            if schema == DELTA_SCHEMA:
                fields["delta"] = _delta(fields["delta"])
            elif schema != SCHEMA:
                raise ValueError("the manifest is of another version")
            fields["parts"] = tuple(
                Part(**{**part, "digests": tuple(part["digests"])}) for part in fields["parts"]
            )
            fields["origin"] = Origin(**fields["origin"])
            fields["labels"] = tuple((str(k), str(v)) for k, v in fields["labels"])
            return cls(**fields)
        except (KeyError, TypeError) as error:
            raise ValueError(f"the manifest lacks a field: {error}") from error


def _delta(fields: Mapping[str, Any]) -> Delta:
    return Delta(
        fields["base"], tuple((name, tuple(numbers)) for name, numbers in fields["shared"])
    )


NAME = re.compile(r"step-(\d+)\.(\d+)\.(\d+)")


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


CHUNK_BYTES = 1 << 20
XXH3 = "xxh3_128"


@dataclass(frozen=True, slots=True)
class Part:
    """``digests`` are of the chunks of ``chunk_bytes`` in order, the last one shorter."""

    name: str
    size_bytes: int
    chunk_bytes: int
    digests: tuple[str, ...]
    algorithm: str = XXH3

    @classmethod
    def of(cls, name: str, data: memoryview, chunk_bytes: int = CHUNK_BYTES) -> Part:
        """Describe ``data`` by XXH3 (128 bits): 10 GB/s, against damage and not against forgery."""
        digests = tuple(
            _digest(XXH3, data[begin : begin + chunk_bytes])
            for begin in range(0, len(data), chunk_bytes)
        )
        return cls(name, len(data), chunk_bytes, digests)

    @property
    def spans(self) -> tuple[slice, ...]:
        """Where each chunk lies in the part."""
        begins = range(0, self.size_bytes, self.chunk_bytes)
        return tuple(slice(b, min(b + self.chunk_bytes, self.size_bytes)) for b in begins)

    def same_chunks(self, other: Part) -> tuple[int, ...]:
        """The numbers of the chunks that hold the same bytes in ``other``."""
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
        """Raises ValueError saying where ``data`` is not what was saved; of all its chunks, or
        ``only`` of these."""
        if len(data) != self.size_bytes:
            raise ValueError(f"{self.name} has {len(data)} bytes instead of {self.size_bytes}")
        spans = self.spans
        if len(self.digests) != len(spans):
            raise ValueError(f"the manifest lacks digests of {self.name}")
        for number, (span, digest) in enumerate(zip(spans, self.digests, strict=True)):
            if only is not None and number not in only:
                continue
            if _digest(self.algorithm, data[span]) != digest:
                raise ValueError(
                    f"{self.name} is damaged between bytes {span.start} and {span.stop}"
                )


def _digest(algorithm: str, data: memoryview) -> str:
    if algorithm != XXH3:
        raise ValueError(f"digests by {algorithm} are unknown to this version")
    try:
        import xxhash
    except ImportError as error:
        raise MissingExtraError(
            "checkpoints are verified with xxhash, which is not installed",
            hint=install_hint("train"),
        ) from error
    return xxhash.xxh3_128_hexdigest(data)


@dataclass(frozen=True, slots=True)
class Delta:
    """``base`` is whole by itself, in the same place, and has a tag for as long as it is needed.

    ``shared`` names, of each part that has any, the numbers of the chunks that lie in the base, in
    a part of the same name and size. The other chunks lie in the checkpoint's own file, one after
    the other; there is no file where there are none.
    """

    base: str
    shared: tuple[tuple[str, tuple[int, ...]], ...]

    def shared_chunks(self, part: Part) -> frozenset[int]:
        """The numbers of its chunks that lie in the base."""
        return frozenset(dict(self.shared).get(part.name, ()))

    def changed_bytes(self, part: Part) -> int:
        """Bytes of it that do not."""
        shared = self.shared_chunks(part)
        return sum(shared_bytes(span) for n, span in enumerate(part.spans) if n not in shared)


def changed_chunks(part: Part, data: memoryview, shared: Collection[int]) -> bytes:
    """The file of a part without what its base holds."""
    return b"".join(data[span] for n, span in enumerate(part.spans) if n not in shared)


def merge_chunks(part: Part, own: bytes, base: bytes, shared: Collection[int]) -> bytes:
    """The inverse: the bytes of a part, not checked yet. What is left of ``own`` is at the end."""
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
    """How many bytes it cuts out."""
    return int(span.stop - span.start)


CODE_REVISION = "COSTOPT_CODE_REVISION"
DATA_REVISION = "COSTOPT_DATA_REVISION"
POLICY = "COSTOPT_POLICY"
GIT = ("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
GIT_TIMEOUT_S = 10.0


def detect_origin(torch_version: str, variables: Mapping[str, str] = os.environ) -> Origin:
    """From the environment; the code's revision otherwise from Git in the working directory."""
    return Origin(
        torch_version=torch_version,
        code_revision=variables.get(CODE_REVISION) or git_revision(),
        data_revision=variables.get(DATA_REVISION) or None,
        policy=variables.get(POLICY) or None,
    )


def git_revision(folder: Path | None = None) -> str | None:
    """The commit of ``folder``, by default the working directory, with "-dirty" where files differ.

    None outside of a repository.
    """
    try:
        found = subprocess.run(  # noqa: S603
            GIT, cwd=folder, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None if found.returncode == 0 else None


def encode_with_digest(fields: Mapping[str, Any]) -> bytes:
    """The document; the same fields give the same bytes."""
    body = json.dumps(fields, sort_keys=True).encode()
    return _sealed_digest(body) + b"\n" + body + b"\n"


def decode_with_digest(data: bytes, what: str) -> dict[str, Any]:
    """The fields. Raises ValueError, naming ``what``, where a bit differs or a byte is missing."""
    checksum, _, body = data.partition(b"\n")
    if body[-1:] != b"\n" or _sealed_digest(body[:-1]) != checksum:
        raise ValueError(f"the {what} does not match its own checksum")
    fields = json.loads(body)
    if not isinstance(fields, dict):
        raise ValueError(f"the {what} is no JSON object")
    return fields


def _sealed_digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()
