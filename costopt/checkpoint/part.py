"""A file of a checkpoint, and the digests by which its bytes are known again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from costopt.domain.distribution import install_hint
from costopt.domain.errors import MissingExtraError

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
