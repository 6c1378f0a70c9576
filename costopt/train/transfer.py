"""Carries a whole state from one rank to the others, tensors as raw bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from costopt.train.group import RankGroup

BUCKET_BYTES = 64 << 20
TENSOR_MARKER = "\0tensor"


def broadcast_state(group: RankGroup, state: Any, source: int) -> Any:
    """The source's state on every rank: dictionaries, lists and plain values with tensors in
    them, bit for bit, on the group's device. Collective; raises PeerLostError."""
    if group.size == 1:
        return state
    tensors: list[Tensor] = []
    skeleton = group.broadcast(_take_out(state, tensors) if group.rank == source else None, source)
    if group.rank == source:
        for bucket in _buckets(tensors):
            group.send(torch.cat([_bytes(t).to(group.device) for t in bucket]), source)
        return state
    tensors = [
        torch.empty(shape, dtype=dtype, device=group.device)
        for dtype, shape in _described(skeleton)
    ]
    for bucket in _buckets(tensors):
        content = torch.empty(
            sum(t.numel() * t.element_size() for t in bucket),
            dtype=torch.uint8,
            device=group.device,
        )
        group.send(content, source)
        parts = torch.split(content, [t.numel() * t.element_size() for t in bucket])
        for tensor, part in zip(bucket, parts, strict=True):
            _bytes(tensor).copy_(part)
    return _put_back(skeleton, iter(tensors))


def _take_out(value: Any, tensors: list[Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors.append(value.detach())
        return (TENSOR_MARKER, value.dtype, list(value.shape))
    if isinstance(value, dict):
        return {key: _take_out(item, tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_take_out(item, tensors) for item in value])
    return value


def _described(value: Any) -> Iterator[tuple[torch.dtype, list[int]]]:
    if _is_mark(value):
        yield value[1], value[2]
    elif isinstance(value, dict):
        for item in value.values():
            yield from _described(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _described(item)


def _put_back(value: Any, tensors: Iterator[Tensor]) -> Any:
    if _is_mark(value):
        return next(tensors)
    if isinstance(value, dict):
        return {key: _put_back(item, tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_put_back(item, tensors) for item in value])
    return value


def _is_mark(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 3 and value[0] == TENSOR_MARKER


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


def _buckets(tensors: list[Tensor]) -> Iterator[list[Tensor]]:
    """Runs of tensors, each of about BUCKET_BYTES; the same on every rank."""
    bucket: list[Tensor] = []
    size = 0
    for tensor in tensors:
        if tensor.numel() == 0:
            continue
        bucket.append(tensor)
        size += tensor.numel() * tensor.element_size()
        if size >= BUCKET_BYTES:
            yield bucket
            bucket, size = [], 0
    if bucket:
        yield bucket
