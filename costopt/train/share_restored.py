"""Gives every rank what rank 0 restored from a tier that only it can reach."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from costopt.checkpoint.manifest import Manifest
from costopt.checkpoint.near.tier import Tier
from costopt.train.checkpointer import RestoredCheckpoint
from costopt.train.group import RankGroup
from costopt.train.transfer import broadcast_state


def broadcast_restored(group: RankGroup, restored: RestoredCheckpoint | None) -> RestoredCheckpoint:
    """Rank 0's, on every rank, its tensors on the CPU. Collective; raises PeerLostError."""
    if group.size == 1 and restored is not None:
        return restored
    described = group.broadcast(None if group.rank != 0 else _described(restored))
    state = broadcast_state(group, restored.state if group.rank == 0 and restored else None, 0)
    if group.rank == 0 and restored is not None:
        return restored
    name, manifest, tier, node, durable, durable_step = described
    return replace(
        RestoredCheckpoint(name, Manifest.decode(manifest), _on_cpu(state)),
        tier=Tier(tier),
        node=node,
        durable=durable,
        durable_step=durable_step,
    )


def _described(restored: RestoredCheckpoint | None) -> tuple[Any, ...]:
    assert restored is not None
    return (
        restored.name,
        restored.manifest.encode(),
        restored.tier.value,
        restored.node,
        restored.durable,
        restored.durable_step,
    )


def _on_cpu(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.cpu()
    if isinstance(value, dict):
        return {key: _on_cpu(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_on_cpu(item) for item in value])
    return value
