"""Time that passes when a test says so."""

from __future__ import annotations

from types import ModuleType

import pytest


class ManualClock:
    """Stands where a module has ``time``; ``now_s`` is what both of its clocks say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
        self.now_s = 1_700_000_000.0
        for module in modules:
            monkeypatch.setattr(module, "time", self)

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.now_s
