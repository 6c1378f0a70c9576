"""Which keys every store takes."""

from __future__ import annotations

import re

from costopt.domain.errors import StoreError

SAFE_PART = re.compile(r"[A-Za-z0-9_@+=,%-][A-Za-z0-9._@+=,:%-]*")


def is_key_part(name: str) -> bool:
    """Whether a key can have this part."""
    return SAFE_PART.fullmatch(name) is not None


def validate_key(key: str) -> tuple[str, ...]:
    """The parts of a key, which is a relative path without hidden parts.

    Each part begins with a letter, digit or one of ``_@+=,%-``, so that no key can leave its store
    and the same keys work in all of them. Raises StoreError.
    """
    parts = tuple(key.split("/"))
    if not all(map(is_key_part, parts)):
        raise StoreError(
            f"{key!r} is no key: it must be a relative path without '..' or hidden parts",
            hint="name jobs and nodes with letters, digits, '-', '_' and '.'",
            code="invalid_key",
            subject=key,
        )
    return parts
