"""The one document that says which checkpoint is the newest, and who may commit the next."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from costopt.checkpoint.sealed import decode_with_digest, encode_with_digest

SCHEMA = 1
KEY = "HEAD"


@dataclass(frozen=True, slots=True)
class Head:
    """``generation`` and ``writer`` (a random word) are the fencing token: nobody else commits.

    ``line`` are the committed checkpoints that training stands on, the newest first; a restore
    takes the first that is valid. ``at`` is wall time in POSIX seconds.
    """

    generation: int
    writer: str
    line: tuple[str, ...]
    at: float

    def encode(self) -> bytes:
        """The document that is stored."""
        return encode_with_digest({"schema": SCHEMA, **asdict(self)})

    @classmethod
    def decode(cls, data: bytes) -> Head:
        """The inverse; raises ValueError saying what is wrong."""
        fields = decode_with_digest(data, KEY)
        if fields.pop("schema", None) != SCHEMA:
            raise ValueError(f"the {KEY} is of another version")
        try:
            return cls(**{**fields, "line": tuple(fields["line"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"the {KEY} lacks a field: {error}") from error
