"""What a checkpoint consists of: written last, so that its presence means the rest is there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from costopt.checkpoint.delta import Delta
from costopt.checkpoint.part import Part
from costopt.checkpoint.sealed import decode_with_digest, encode_with_digest

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
