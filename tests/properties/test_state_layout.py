"""Any state of tensors and plain values comes back to the bit; what was shared is shared again."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from costopt.train.state_layout import ALIGNMENT, StateLayout, rebuild_state

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.int64,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
)


def tensor(dtype: torch.dtype, sizes: list[int], kind: str, seed: int) -> Tensor:
    """Random bits, so also NaN of every kind; whole, a view, transposed, expanded, a parameter."""
    generator = torch.Generator().manual_seed(seed)
    count = 1
    for size in sizes:
        count *= size
    width = torch.empty(0, dtype=dtype).element_size()
    high = 2 if dtype is torch.bool else 256
    bits = torch.randint(0, high, (max(1, count) * width,), dtype=torch.uint8, generator=generator)
    whole = bits.view(dtype)[:count].view(sizes)
    match kind:
        case "view" if whole.dim() and whole.shape[0] > 1:
            return whole[1:]
        case "transposed":
            return whole.t() if whole.dim() == 2 else whole
        case "expanded":
            return whole.unsqueeze(0).expand(2, *whole.shape)
        case "parameter":
            return nn.Parameter(whole, requires_grad=dtype.is_floating_point)
    return whole


tensors = st.builds(
    tensor,
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 5), max_size=3),
    st.sampled_from(["whole", "view", "transposed", "expanded", "parameter"]),
    st.integers(0, 1000),
)
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
keys = st.text(max_size=4) | st.integers(0, 9)
states = st.dictionaries(
    keys,
    st.recursive(
        tensors | plain,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(keys, inner, max_size=3)
            | st.dictionaries(keys, inner, max_size=3).map(OrderedDict)
        ),
        max_leaves=12,
    ),
    max_size=5,
)


def copied(layout: StateLayout) -> bytes:
    whole = bytearray(layout.tensor_bytes)
    for extent in layout.extents:
        flat = torch.empty(0, dtype=torch.uint8).set_(extent.storage)
        whole[extent.offset : extent.offset + extent.size_bytes] = bytes(flat.tolist())
    return bytes(whole)


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[begin : begin + size] for begin in range(0, len(data), size)]


def round_trip(state: dict[Any, Any], part_bytes: int = 1 << 20) -> dict[str, Any]:
    layout = StateLayout.of(state)
    parts = cut(copied(layout), part_bytes)
    return rebuild_state(layout.pack(), [len(part) for part in parts], lambda number: parts[number])


def same(a: object, b: object) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        form = (type(a), a.dtype, a.shape, a.stride(), a.storage_offset(), a.requires_grad)
        if form != (type(b), b.dtype, b.shape, b.stride(), b.storage_offset(), b.requires_grad):
            return False
        return _bits(a) == _bits(b)
    if type(a) is not type(b):
        return False
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def _bits(value: Tensor) -> list[int]:
    bits: list[int] = value.detach().contiguous().flatten().view(torch.uint8).tolist()
    return bits


@settings(max_examples=150, deadline=None)
@given(states, st.sampled_from([1, 7, ALIGNMENT, 1000]))
def test_every_state_comes_back_to_the_bit(state: dict[Any, Any], part_bytes: int) -> None:
    before = StateLayout.of(state).pack()
    assert same(round_trip(state, part_bytes), state)
    assert StateLayout.of(state).pack() == before, "the state itself was changed"


def test_what_is_shared_stays_shared() -> None:
    weights = torch.arange(12.0).view(3, 4)
    inner = {"weights": weights, "part": weights[1]}
    back = round_trip({"a": inner, "b": inner, "tied": weights.t()})
    assert back["a"] is back["b"]
    back["tied"][0, 1] = -1.0
    assert back["a"]["part"][0] == back["a"]["weights"][1, 0] == -1.0


def test_a_module_s_metadata_is_kept() -> None:
    state = nn.Sequential(nn.BatchNorm1d(3)).state_dict()
    back = round_trip({"model": state})["model"]
    assert back._metadata == state._metadata  # type: ignore[attr-defined]
    nn.Sequential(nn.BatchNorm1d(3)).load_state_dict(back)


def test_tensors_that_bytes_do_not_describe_go_with_the_objects() -> None:
    odd = {
        "sparse": torch.eye(3).to_sparse(),
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "meta": torch.empty(3, device="meta"),
        "empty": torch.empty(0, 4),
    }
    layout = StateLayout.of(odd)
    assert layout.extents == ()
    back = round_trip(odd)
    assert torch.equal(back["sparse"].to_dense(), torch.eye(3))
    assert back["conjugate"][0] == 1 - 2j
    assert (back["meta"].device.type, back["empty"].shape) == ("meta", (0, 4))
