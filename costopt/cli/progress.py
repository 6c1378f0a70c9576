"""Lines that say how far something long is, where no terminal draws a bar."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import click

from costopt.formatting import seconds_text

FIRST_LINE_S = 10.0
INTERVAL_S = 30.0
FEW_ITEMS = 10
"""Before so many, an estimate waits for an interval, as the first few may be unlike the rest."""

Item = TypeVar("Item")


def _say(line: str) -> None:
    click.echo(line, err=True)


def with_progress(
    items: Iterable[Item],
    total: int,
    what: str,
    *,
    known: int = 0,
    first_line_s: float = FIRST_LINE_S,
    now_s: Callable[[], float] = time.monotonic,
    say: Callable[[str], None] = _say,
) -> Iterator[Item]:
    """The items, and a line now and then of how many of ``total`` have come and what time is left.

    The estimate rests neither on the first ``known`` of them, which took no time, nor on the one
    after, which waited for what had to start. What ends within ``first_line_s`` says nothing.
    """
    began_s = now_s()
    due_s, steady_s = first_line_s, began_s
    for count, item in enumerate(items, start=1):
        yield item
        now = now_s()
        if count == known + 1:
            steady_s = now
        timed = count - known - 1
        is_sure = timed >= FEW_ITEMS or (timed > 0 and now - began_s >= INTERVAL_S)
        if now - began_s >= due_s and is_sure and count < total:
            left_s = (now - steady_s) / timed * (total - count)
            say(f"{count:,} of {total:,} {what}, about {seconds_text(left_s)} left")
            due_s = now - began_s + INTERVAL_S
