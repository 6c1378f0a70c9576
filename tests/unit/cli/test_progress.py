"""Lines of progress: none for what is short, an estimate soon for what is long."""

from __future__ import annotations

from collections.abc import Iterator

from costopt.cli.backtest import FIRST_LINE_S, INTERVAL_S, with_progress


class Work:
    """Items that take time by a clock of their own, after some that take none."""

    def __init__(self, item_s: float, known: int = 0, start_s: float = 0.0) -> None:
        self.item_s = item_s
        self.start_s = start_s
        self.known = known
        self.elapsed_s = 0.0

    def items(self, count: int) -> Iterator[int]:
        for index in range(count):
            self.elapsed_s += self.item_s if index >= self.known else 0.0
            self.elapsed_s += self.start_s if index == self.known else 0.0
            yield index

    def lines(self, count: int, first_line_s: float = FIRST_LINE_S) -> list[str]:
        said: list[str] = []
        seen = with_progress(
            self.items(count), count, "runs", known=self.known, first_line_s=first_line_s,
            now_s=lambda: self.elapsed_s, say=said.append,
        )  # fmt: skip
        assert list(seen) == list(range(count))
        return said


def test_what_is_short_says_nothing() -> None:
    assert Work(0.1).lines(50) == []
    assert Work(FIRST_LINE_S).lines(1) == []


def test_what_is_long_says_how_much_is_left() -> None:
    lines = Work(2.0).lines(100)
    assert lines[0] == "11 of 100 runs, about 2 min 58 s left"
    assert len(lines) == 1 + (198 - 22) // INTERVAL_S
    assert Work(0.5).lines(100, first_line_s=2.0)[0] == "11 of 100 runs, about 44 s left"


def test_few_long_items_are_waited_for_with_progress() -> None:
    assert Work(20.0).lines(5)[0] == "2 of 5 runs, about 1 min left"


def test_the_estimate_does_not_rest_on_what_was_known() -> None:
    assert Work(10.0, known=90).lines(100)[0] == "93 of 100 runs, about 1 min 10 s left"


def test_the_estimate_does_not_rest_on_the_start() -> None:
    assert Work(1.0, start_s=60.0).lines(100)[0] == "2 of 100 runs, about 1 min 38 s left"
