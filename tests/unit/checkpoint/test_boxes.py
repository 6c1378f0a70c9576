"""Boxes of tensors: what tiles, who writes what, and the index that records it."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise, product
from math import prod

import pytest

from costopt.checkpoint.manifest import Part, TensorSpec
from costopt.checkpoint.sharded.boxes import (
    HeldBox,
    TensorBox,
    untiled_reason,
    whole_box,
)
from costopt.checkpoint.sharded.index import (
    PlacedBox,
    SaveIdentity,
    ShardIndex,
    ShardLayout,
)
from costopt.checkpoint.sharded.tiling import BoxColumns, incomplete_reason
from costopt.checkpoint.sharded.writers import assign_writers, box_keys

SQUARE = TensorSpec("w", "float32", (6, 4))


def rows(*bounds: int) -> list[TensorBox]:
    return [TensorBox((begin, 0), (end - begin, 4)) for begin, end in pairwise(bounds)]


@pytest.mark.parametrize(
    "boxes",
    [
        rows(0, 6),
        rows(0, 2, 4, 6, 6),
        rows(0, 5, 6),
        [TensorBox((r, c), (3, 2)) for r, c in product((0, 3), (0, 2))],
        # No grid: a pinwheel around one element.
        [
            TensorBox((0, 0), (1, 3)), TensorBox((0, 3), (5, 1)), TensorBox((5, 1), (1, 3)),
            TensorBox((1, 0), (5, 1)), TensorBox((1, 1), (4, 2)),
        ],
    ],
)  # fmt: skip
def test_boxes_that_tile(boxes: list[TensorBox]) -> None:
    assert untiled_reason(SQUARE, boxes) is None
    assert incomplete_reason(*written(boxes)) is None


@pytest.mark.parametrize(
    "boxes",
    [
        [],
        rows(0, 5),
        [*rows(0, 6), *rows(0, 1)],
        [*rows(0, 3), *rows(2, 5)],
        [TensorBox((0, 0), (6, 5))],
        [TensorBox((0,), (24,))],
        [TensorBox((-1, 0), (6, 4))],
        # What strided placements made by hand describe: two ranks say the same rows.
        [*rows(0, 2, 4), *rows(0, 2)],
    ],
)
def test_boxes_that_do_not_tile(boxes: list[TensorBox]) -> None:
    reason = untiled_reason(SQUARE, boxes)
    assert reason is not None
    if all(len(box.starts) == 2 for box in boxes):
        assert incomplete_reason(*written(boxes)) == reason


def written(boxes: list[TensorBox]) -> tuple[list[bytes], list[int]]:
    """The documents of ranks that write a box each, beside a whole tensor and a number."""
    step, cube = TensorSpec("step", "float32", ()), TensorSpec("cube", "int8", (2, 2, 2))
    placed = [[PlacedBox(1, box, 0)] for box in boxes] or [[]]
    placed[0] += [PlacedBox(0, whole_box(()), 0), PlacedBox(2, whole_box((2, 2, 2)), 0)]
    layouts = [ShardLayout((step, SQUARE, cube), tuple(each)).encode() for each in placed]
    return layouts, [200] * len(layouts)


def test_scalars_and_empty_tensors_tile() -> None:
    assert untiled_reason(TensorSpec("step", "float32", ()), [TensorBox((), ())]) is None
    assert untiled_reason(TensorSpec("step", "float32", ()), [TensorBox((), ())] * 2) is not None
    assert untiled_reason(TensorSpec("none", "float32", (0, 4)), []) is None


def test_slabs_cover_a_box_and_stay_small() -> None:
    draw = random.Random(3)
    for _ in range(200):
        shape = tuple(draw.randint(1, 6) for _ in range(draw.randint(1, 3)))
        within = whole_box(shape)
        starts = tuple(draw.randrange(size) for size in shape)
        pairs = zip(shape, starts, strict=True)
        inner = TensorBox(starts, tuple(draw.randint(1, size - start) for size, start in pairs))
        most = draw.randint(1, 20)
        slabs = list(inner.slabs(within, most))
        assert (
            untiled_reason(
                TensorSpec("t", "float32", inner.sizes),
                [
                    TensorBox(
                        tuple(a - b for a, b in zip(s.starts, inner.starts, strict=True)), s.sizes
                    )
                    for s in slabs
                ],
            )
            is None
        )
        for slab in slabs:
            begin, end = within.extent(slab)
            assert end - begin <= most or prod(slab.sizes) == 1


def test_each_box_is_written_once_and_replicas_are_balanced() -> None:
    held = {
        rank: [
            HeldBox(TensorSpec(f"layer{n}", "float32", (4, 10 + n)), TensorBox((rank % 2 * 2, 0),
                    (2, 10 + n)), 8 * (10 + n))
            for n in range(40)
        ]
        + [HeldBox(TensorSpec("step", "float32", ()), TensorBox((), ()), 4)]
        for rank in range(4)
    }  # fmt: skip
    writes = assign_writers([box_keys(held[rank]) for rank in range(4)])
    chosen = {
        rank: [box for box, own in zip(held[rank], writes[rank], strict=True) if own]
        for rank in held
    }
    written = [box for boxes in chosen.values() for box in boxes]
    assert sorted(written) == sorted({box for boxes in held.values() for box in boxes})
    loads = [sum(box.size_bytes for box in boxes) for boxes in chosen.values()]
    assert max(loads) <= 1.02 * min(loads)


def test_any_boxes_are_written_once_by_any_holder() -> None:
    draw = random.Random(4)
    for _ in range(50):
        ranks = draw.randint(1, 6)
        boxes = [
            HeldBox(TensorSpec(f"t{n}", "int8", (n,)), TensorBox((0,), (n,)), draw.choice([0, n]))
            for n in range(draw.randint(0, 30))
        ]
        held: list[list[HeldBox]] = [[] for _ in range(ranks)]
        for box in boxes:
            for rank in draw.sample(range(ranks), draw.randint(1, ranks)):
                held[rank].append(box)
        writes = assign_writers([box_keys(each) for each in held])
        written = [
            box
            for each, own in zip(held, writes, strict=True)
            for box, is_own in zip(each, own, strict=True)
            if is_own
        ]
        assert sorted(written) == sorted(box for box in boxes if box.size_bytes)


def index() -> ShardIndex:
    layout = ShardLayout((SQUARE,), (PlacedBox(0, TensorBox((0, 0), (6, 4)), 0),))
    identity = SaveIdentity(7, 1, "word", 0, 1, 1.0, 2.0, None, {}, (("loss", "1"),))
    data = memoryview(bytes(range(96)))
    return ShardIndex(
        identity, layout.encode(), Part.of("o", data[:5], 2), (Part.of("t", data, 10),)
    )


def test_an_index_comes_back() -> None:
    assert ShardIndex.decode(index().encode()) == index()
    assert BoxColumns.decode(index().layout_data).box(0) == TensorBox((0, 0), (6, 4))
    empty = replace(index(), objects=Part.of("o", memoryview(b"")), tensors=())
    assert ShardIndex.decode(empty.encode()) == empty


def test_damage_of_an_index_is_found() -> None:
    data = index().encode()
    for place in range(0, len(data), 3):
        damaged = bytearray(data)
        damaged[place] ^= 4
        with pytest.raises(ValueError, match="index"):
            ShardIndex.decode(bytes(damaged))
        with pytest.raises(ValueError, match="index"):
            ShardIndex.decode(data[:place])


def test_ranks_must_agree_on_tensors_and_write_what_they_list() -> None:
    layout = index().layout_data
    assert incomplete_reason([layout], [96]) is None
    assert "did not write all" in (incomplete_reason([layout], [95]) or "")
    other = ShardLayout((replace_dtype(SQUARE, "bfloat16"),), ()).encode()
    assert "another type" in (incomplete_reason([layout, other], [96, 0]) or "")
    only_held = ShardLayout((TensorSpec("v", "float32", (2,)),), ()).encode()
    assert "elements of v are missing" in (incomplete_reason([layout, only_held], [96, 0]) or "")
    unknown = ShardLayout((replace_dtype(SQUARE, "quint4"),), ()).encode()
    assert "unsupported type" in (incomplete_reason([unknown], [0]) or "")


def replace_dtype(tensor: TensorSpec, dtype: str) -> TensorSpec:
    return tensor._replace(dtype=dtype)
