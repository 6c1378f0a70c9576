"""What is saved beside tensors, as ``torch.save`` writes it and ``weights_only`` reads it."""

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


def load_objects(data: bytes, whose: str = "the checkpoint holds") -> dict[str, Any]:
    """Return packed objects. Raise CheckpointError if PyTorch does not load them safely."""
    try:
        found: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{whose} objects that PyTorch does not load safely: {str(error).splitlines()[0]}",
            hint="allow them with torch.serialization.add_safe_globals",
            code="unsafe_objects",
        ) from error
    return found
