"""What a checkpoint consists of: written last, so that its presence means the rest is there."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class SavedFile:
    """A file of a checkpoint with its length and SHA-256."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """``at`` is wall time in POSIX seconds, ``save_s`` how long the save took up to here.

    ``parent`` is the checkpoint that training resumed from, or None for a fresh start.
    """

    step: int
    generation: int
    world_size: int
    torch_version: str
    files: tuple[SavedFile, ...]
    at: float
    save_s: float
    parent: str | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of all files together."""
        return sum(file.size_bytes for file in self.files)

    def encode(self) -> bytes:
        """JSON whose first line is the SHA-256 of the second."""
        body = json.dumps({"schema": SCHEMA, **asdict(self)}, sort_keys=True).encode()
        return hashlib.sha256(body).hexdigest().encode() + b"\n" + body + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """The inverse; raises ValueError saying what is wrong."""
        checksum, _, body = data.partition(b"\n")
        if hashlib.sha256(body[:-1]).hexdigest().encode() != checksum or body[-1:] != b"\n":
            raise ValueError("the manifest does not match its own checksum")
        fields = json.loads(body)
        if fields.pop("schema") != SCHEMA:
            raise ValueError("the manifest is of another version")
        fields["files"] = tuple(SavedFile(**file) for file in fields["files"])
        return cls(**fields)
