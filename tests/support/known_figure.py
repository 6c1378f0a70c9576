"""Figures that a test expects to be known."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def known(figure: T | None) -> T:
    """The figure; fails where it is unknown."""
    assert figure is not None
    return figure
