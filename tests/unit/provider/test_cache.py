"""Answers are kept, old ones bridge failures, and failures are not repeated at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from costopt.domain.errors import ProviderError, ThrottledError
from costopt.provider.cache import TtlCache, fan_out

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


class Source:
    """Answers 1, 2, 3 …, or fails while it is told to."""

    def __init__(self) -> None:
        self.calls = 0
        self.failing = False

    def __call__(self) -> int:
        self.calls += 1
        if self.failing:
            raise ThrottledError("too many calls")
        return self.calls


def test_an_answer_is_asked_for_again_once_it_is_old() -> None:
    source, kept = Source(), TtlCache[str, int](60)
    assert [kept.get("a", after(s), source) for s in (0, 59, 60, 61)] == [1, 1, 2, 2]
    assert kept.get("b", after(61), source) == 3


def test_an_old_answer_bridges_a_failure_and_then_no_more() -> None:
    source, kept = Source(), TtlCache[str, int](60, 600)
    assert kept.get("a", T0, source) == 1
    source.failing = True
    assert kept.get("a", after(599), source) == 1
    with pytest.raises(ThrottledError):
        kept.get("a", after(600), source)


def test_after_a_failure_the_question_rests_for_longer_and_longer() -> None:
    source, kept = Source(), TtlCache[str, int](60)
    source.failing = True
    asked = []
    for second in range(0, 4000, 5):
        before = source.calls
        with pytest.raises(ThrottledError):
            kept.get("a", after(second), source)
        if source.calls > before:
            asked.append(second)
    assert asked == [0, 30, 90, 210, 450, 930, 1830, 2730, 3630]
    source.failing = False
    assert kept.get("a", after(4600), source) == source.calls


def test_one_that_fails_stops_no_other() -> None:
    def ask(key: int) -> int:
        if key == 2:
            raise ProviderError("no")
        return key * 10

    responses = fan_out([3, 1, 2], ask)
    assert list(responses) == [3, 1, 2]
    assert (responses[3], responses[1]) == (30, 10)
    assert isinstance(responses[2], ProviderError)
    assert fan_out([], ask) == {}
