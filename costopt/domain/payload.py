"""What a node needs before it can train: our agent and the job's code, as files of a store."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that is named by its content: ``key`` in the store holds ``sha256``."""

    key: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Payload:
    """``wheel`` is costopt itself, ``bundle`` a tar.gz of the job's folder, both under ``store``.

    ``store`` is the URI that nodes reach the controller through; ``requirements`` are what the
    wheel needs of other packages, as pip takes them, where a node's image lacks them.
    """

    job: str
    store: str
    wheel: StoredFile
    bundle: StoredFile
    requirements: tuple[str, ...] = ()
