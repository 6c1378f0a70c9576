"""The edition of the code and its data: what decides a score beside the trial itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import costopt

PACKAGES = ("costopt", "costopt_sim")
EXCLUDED_PACKAGES = frozenset({"__pycache__", "cli", "report", "daemon", "agent", "train"})
"""Folders that no replay runs through."""


def code_digest() -> str:
    """A digest of every file that a replay may run or read."""
    digest = hashlib.sha256(costopt.__version__.encode())
    for folder in _folders():
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not EXCLUDED_PACKAGES & set(path.relative_to(folder).parts):
                digest.update(f"{path.relative_to(folder)}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _folders() -> Iterator[Path]:
    for name in PACKAGES:
        spec = find_spec(name)
        for place in () if spec is None else spec.submodule_search_locations or ():
            yield Path(place)
