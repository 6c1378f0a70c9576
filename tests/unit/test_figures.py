"""What ``make figures`` says of figures that are not as recorded."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from benchmarks.figures import FILE, Figures, differences


def test_what_changed_is_said_case_by_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COSTOPT_DATA", raising=False)
    before = {
        "plan: a": {"usd": 1.0, "kWh": 2.0},
        "plan: b": {"usd": 3.0},
        "published: c": {"usd": 4.0},
    }
    now: Figures = {"plan: a": {"usd": 1.5, "kWh": 2.0}, "run: d": {"events": 5}}
    assert sorted(differences(before, now)) == [
        "plan: a: usd was 1.0, is 1.5",
        "plan: b: gone",
        "run: d: new",
    ]


def test_what_cannot_be_computed_without_data_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {"published: c": {"usd": 4.0}}
    monkeypatch.delenv("COSTOPT_DATA", raising=False)
    assert list(differences(before, {})) == []
    monkeypatch.setenv("COSTOPT_DATA", "data")
    assert list(differences(before, {})) == ["published: c: gone"]


def test_the_record_has_the_parts_that_it_promises() -> None:
    counts = Counter(case.partition(":")[0] for case in json.loads(FILE.read_text("utf-8")))
    assert counts == {"plan": 20, "what-if": 10, "backtest": 5, "run": 10, "published": 6}
