"""What a rank saves beside tensors, as ``torch.save`` writes it and ``weights_only`` reads it."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any

import torch

from costopt.domain.errors import CheckpointError


def pack_objects(objects: Mapping[str, Any]) -> bytes:
    """Return objects as they are stored."""
    packed = io.BytesIO()
    torch.save(dict(objects), packed)
    return packed.getvalue()


def load_objects(data: bytes) -> dict[str, Any]:
    """Return stored objects. Raise CheckpointError if PyTorch does not load them safely."""
    try:
        found: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            "the checkpoint holds objects that PyTorch does not load safely: "
            f"{str(error).splitlines()[0]}",
            hint="allow them with torch.serialization.add_safe_globals before restoring",
            code="unsafe_objects",
        ) from error
    return found
