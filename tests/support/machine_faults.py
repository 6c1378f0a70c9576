"""What befalls the machine of a daemon in a trial: its clock, its disk and its database."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from enum import StrEnum
from typing import Any, cast

from costopt.controller.state_dir import LEDGER
from tests.support.daemon_simulation import Trial

Happening = Callable[[Trial], None]
MAX_TICKS = 90
"""Faults begin and end before a trial does."""
LASTS_TICKS = (1, 15)
JUMPS_S = (1.0, 3600.0)
SLOW_S = (1, 20)
"""Whole seconds, as bills count milliseconds and round what is below."""
MAX_LOST = 200


class MachineFault(StrEnum):
    """What can go wrong beside the line to a cloud."""

    CLOCK = "clock set ahead or back"
    FAILOVER = "failover that loses commits"
    FULL_DISK = "full disk"
    SLOW_DISK = "slow disk"


class NoSchedule:
    """In place of a daemon's schedule, as a trial calls the tasks itself."""

    def realign(self) -> None:
        """Nothing is due."""


def happenings(faults: Sequence[MachineFault], chances: random.Random) -> dict[int, Happening]:
    """Each fault once or twice, by the tick before which it begins or ends."""
    found: dict[int, list[Happening]] = {}
    for fault in faults:
        for _ in range(chances.randint(1, 2)):
            tick, lasts = chances.randrange(2, MAX_TICKS), chances.randint(*LASTS_TICKS)
            begin, end = _FAULTS[fault](chances)
            found.setdefault(tick, []).append(begin)
            found.setdefault(tick + lasts, []).append(end)
    return {tick: _all(each) for tick, each in found.items()}


def _all(each: Sequence[Happening]) -> Happening:
    def happen(made: Trial) -> None:
        for happening in each:
            happening(made)

    return happen


def _clock(chances: random.Random) -> Iterator[Happening]:
    jump_s = chances.choice((-1, 1)) * chances.uniform(*JUMPS_S)

    def set_by(seconds: float) -> Happening:
        def happen(made: Trial) -> None:
            made.wall.off_s += seconds
            made.daemon.observe_jump(seconds, cast("Any", NoSchedule()))

        return happen

    yield set_by(jump_s)
    yield set_by(-jump_s)


def _failover(chances: random.Random) -> Iterator[Happening]:
    share = chances.random()

    def lose(made: Trial) -> None:
        """Lose events of this daemon's life: what a dead one wrote no living one remembers."""
        last = made.ledger.last_seq()
        rows = [row["seq"] for row in made.ledger._appended._rows][-MAX_LOST:]
        if not rows or rows[-1] != last:
            return
        with closing(sqlite3.connect(made.folder / LEDGER)) as raw:
            raw.execute("DROP TRIGGER IF EXISTS events_never_vanish")
            raw.execute("DELETE FROM events WHERE seq >= ?", (rows[int(share * len(rows))],))
            raw.commit()
        made.lost_events += last - made.ledger.last_seq()

    yield lose
    yield lambda _: None


def _full_disk(_: random.Random) -> Iterator[Happening]:
    def fill(made: Trial) -> None:
        ((pages,),) = made.ledger._read("PRAGMA page_count")
        made.ledger._read(f"PRAGMA max_page_count = {pages}")

    def clear(made: Trial) -> None:
        made.ledger._read("PRAGMA max_page_count = 1000000")

    yield fill
    yield clear


def _slow_disk(chances: random.Random) -> Iterator[Happening]:
    slow_s = float(chances.randint(*SLOW_S))
    yield lambda made: setattr(made, "write_s", slow_s)
    yield lambda made: setattr(made, "write_s", 0.0)


_FAULTS: dict[MachineFault, Callable[[random.Random], Iterator[Happening]]] = {
    MachineFault.CLOCK: _clock,
    MachineFault.FAILOVER: _failover,
    MachineFault.FULL_DISK: _full_disk,
    MachineFault.SLOW_DISK: _slow_disk,
}
