"""What a checkpoint leaves out because another one, its base, holds the same bytes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from costopt.checkpoint.part import Part


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
