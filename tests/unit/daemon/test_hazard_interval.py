"""The Market page shows a measured hazard inside its own interval."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from costopt.domain.estimate import Basis, Estimate
from costopt.views.offer import hazard_text

FIGURES = st.lists(st.floats(0.0, 1e4, allow_subnormal=False), min_size=3, max_size=3, unique=True)


@given(FIGURES)
def test_a_hazard_is_shown_inside_its_interval(figures: list[float]) -> None:
    low, value, high = sorted(figures)
    text = hazard_text(Estimate(value, low, high, Basis.MEASURED, "seen"))
    shown = [float(part) for part in re.split(r" \(|–|\)", text) if part]
    assert shown[1] <= shown[0] <= shown[2]


def test_a_narrow_interval_holds_its_figure() -> None:
    text = hazard_text(Estimate(0.1249, 0.1247, 0.1251, Basis.MEASURED, "seen"))
    assert text == "0.125 (0.12–0.13)"
