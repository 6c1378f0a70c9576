"""How many examples of a property are tried."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

MIN_EXAMPLES = 5


def try_fewer(function: Any, share: float) -> None:
    """Let ``function``, where it is a property, try this share of its examples, at least five."""
    if not hasattr(function, "hypothesis"):
        return
    usual: Any = getattr(function, "_hypothesis_internal_use_settings", None) or settings.default
    fewer = max(min(MIN_EXAMPLES, usual.max_examples), int(usual.max_examples * share))
    function._hypothesis_internal_use_settings = settings(usual, max_examples=fewer)
