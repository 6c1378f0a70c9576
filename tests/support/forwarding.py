"""What passes on whatever it does not do itself."""

from __future__ import annotations

from typing import Any


class Forwarding:
    """A stand-in for ``inner``: a runtime, store or provider of which a test changes some calls."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
