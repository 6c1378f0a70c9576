"""``Stream``: iterable and streaming data sets, one iterator per virtual shard, resumed exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from costopt.domain.errors import CostoptError

Factory = Callable[[int, int], Iterable[Any]]
"""Returns the batches of one of so many shards, the same in the same order each time."""


@dataclass(slots=True)
class _ShardIterator:
    """``taken`` batches were taken in all, ``latest`` is the last of them."""

    source: Any
    batches: Iterator[Any]
    taken: int = 0
    latest: Any = field(default=None, repr=False)


class Stream:
    """Pass it to ``attach`` as ``data``: step N takes batch N of each virtual shard.

    Each process holds the iterators of the shards that it computes. A shard that it did not have,
    after a restart or a change of the gang, is created by ``factory(shard, shards)`` and advanced
    to its place. At its end a shard begins again. Sources with ``state_dict`` and
    ``load_state_dict``, as torchdata's StatefulDataLoader has them, need not be advanced where
    ``load_state_dict`` knew the shard: in a loop of your own, save ``state_dict()`` in ``extra`` of
    ``ShardedCheckpointer``.
    """

    def __init__(self, factory: Factory, *, shards: int) -> None:
        """``shards`` are the virtual shards of ``attach``."""
        self._factory, self._shards = factory, shards
        self._open: dict[int, _ShardIterator] = {}
        self._saved: dict[int, dict[str, Any]] = {}

    def __call__(self, step: int, shard: int) -> Any:
        """Return batch ``step`` of a shard. Raise CostoptError if the shard is empty."""
        if not 0 <= shard < self._shards:
            raise CostoptError(
                f"there is no shard {shard} in a stream of {self._shards}",
                hint="give Stream the virtual_shards of attach",
            )
        found = self._open.get(shard)
        if found is not None and found.taken == step + 1:
            return found.latest
        if found is None or found.taken > step + 1:
            found = self._open[shard] = self._resumed(shard, step)
        while found.taken <= step:
            self._advance(found, shard)
        return found.latest

    def state_dict(self) -> dict[str, Any]:
        """Return the positions of this process' shards, for ``load_state_dict``."""
        return {
            "shards": {
                shard: {
                    "taken": found.taken,
                    "source": found.source.state_dict()
                    if hasattr(found.source, "state_dict")
                    else None,
                }
                for shard, found in self._open.items()
            }
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from these positions. Shards that they do not contain are advanced."""
        self._open.clear()
        self._saved = {int(shard): saved for shard, saved in state["shards"].items()}

    def _resumed(self, shard: int, step: int) -> _ShardIterator:
        source, taken = self._factory(shard, self._shards), 0
        saved = self._saved.pop(shard, None)
        can_load = hasattr(source, "load_state_dict")
        if (
            saved is not None
            and saved["source"] is not None
            and saved["taken"] <= step
            and can_load
        ):
            source.load_state_dict(saved["source"])  # type: ignore[attr-defined]
            taken = saved["taken"]
        return _ShardIterator(source, iter(source), taken)

    def _advance(self, found: _ShardIterator, shard: int) -> None:
        try:
            found.latest = next(found.batches)
        except StopIteration:
            found.source = self._factory(shard, self._shards)
            found.batches = iter(found.source)
            try:
                found.latest = next(found.batches)
            except StopIteration:
                raise CostoptError(
                    f"shard {shard} of {self._shards} has no batches",
                    hint="give each virtual shard data, or use fewer of them",
                    code="empty",
                ) from None
        found.taken += 1
