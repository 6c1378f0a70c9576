"""A full disk, a clock that jumps, clouds and stores that fall silent, a storm, a corrupt file."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from costopt.controller.state_dir import LEDGER
from costopt.daemon.loop.backups import Backups
from costopt.daemon.reader import TenantReader
from costopt.domain.errors import LedgerError
from costopt.domain.events import InterruptionNoticed, NodeLaunched, TrainingStarted
from costopt.domain.market import Interruption
from tests.support.daemon_simulation import TICK_S, Outcome, Trial, Wrong, trial
from tests.support.engine_fixtures import SPOT_A
from tests.support.errors import has_code
from tests.support.forwarding import Forwarding
from tests.support.market_fixtures import T0

WELL = Outcome(0, 0, ())
CALLS = ("uninterruptible_s", "offers", "nodes", "notices", "launch", "terminate")
HALF_AN_HOUR = 15
"""Ticks."""
PAGE_BYTES = 4096


def _pragma(text: str) -> Callable[[Trial], None]:
    def set_it(made: Trial) -> None:
        made.ledger._read(f"PRAGMA {text}")

    return set_it


def _fill_disk(made: Trial) -> None:
    ((pages,),) = made.ledger._read("PRAGMA page_count")
    _pragma(f"max_page_count = {pages}")(made)


@pytest.mark.exhaustive
@pytest.mark.parametrize("tick", [1, 6, 25, 33])
@pytest.mark.parametrize(
    ("begins", "ends", "said"),
    [
        (_fill_disk, _pragma("max_page_count = 1000000"), "the disk is full"),
        (_pragma("query_only = ON"), _pragma("query_only = OFF"), "read"),
    ],
    ids=["full disk", "read-only database"],
)
def test_a_ledger_that_cannot_be_written(
    tick: int, begins: Callable[[Trial], None], ends: Callable[[Trial], None], said: str
) -> None:
    health: list[bool] = []

    def end(made: Trial) -> None:
        health.append(TenantReader(made.daemon.service).health().ready)
        ends(made)

    with trial(happenings={tick: begins, tick + HALF_AN_HOUR: end}) as made:
        assert made.run() == WELL
        assert any(said in line for line in made.said)
        assert health == [False]
        assert TenantReader(made.daemon.service).health().ready
        assert "tick" in [alert.kind for alert in TenantReader(made.daemon.service).alerts()]


@pytest.mark.parametrize("tick", [1, 6, 25])
def test_clouds_that_are_unreachable_for_half_an_hour(tick: int) -> None:
    happenings = {
        tick: lambda made: made.cloud.silent.update(CALLS),
        tick + HALF_AN_HOUR: lambda made: made.cloud.silent.clear(),
    }
    with trial(happenings=happenings) as made:
        assert made.run() == WELL


@pytest.mark.parametrize("tick", [1, 10, 25])
def test_a_store_that_is_unreachable_for_half_an_hour(tick: int) -> None:
    """What trains goes on; who was to be told something is told it afterwards."""
    happenings = {
        tick: lambda made: made.runtime.silent.update({"form_gang", "drain"}),
        tick + HALF_AN_HOUR: lambda made: made.runtime.silent.clear(),
    }
    with trial(happenings=happenings) as made:
        assert made.run() == WELL
        assert made.runtime.refusals > 0
        if tick == 1:
            begun = [r.event for r in made.ledger.events() if isinstance(r.event, TrainingStarted)]
            again_s = (tick + HALF_AN_HOUR) * TICK_S
            assert (begun[0].at - T0).total_seconds() <= again_s + 3 * TICK_S


@pytest.mark.exhaustive
@pytest.mark.parametrize("tick", [2, 8, 25])
@pytest.mark.parametrize("step_s", [3600.0, -3600.0], ids=["+1 h", "-1 h"])
@pytest.mark.parametrize("lasts", [HALF_AN_HOUR, 1000], ids=["put right", "for good"])
def test_a_clock_that_is_stepped(tick: int, step_s: float, lasts: int) -> None:
    happenings = {
        tick: lambda made: setattr(made.wall, "off_s", step_s),
        tick + lasts: lambda made: setattr(made.wall, "off_s", 0.0),
    }
    with trial(happenings=happenings) as made:
        assert made.run() == WELL


class Storm(Forwarding):
    """A cloud that tells of every interruption again and again, and of many nodes not ours."""

    def __init__(self, inner: Any, count: int) -> None:
        super().__init__(inner)
        self._count = count
        self.reported = 0

    def notices(self, owner: str) -> tuple[Interruption, ...]:
        mine = self._inner.notices(owner)
        now = self._inner.inner._clock.now()
        others = [Interruption(f"other-{n}", SPOT_A, now, now) for n in range(self._count // 2)]
        echoes = [mine[n % len(mine)] for n in range(self._count // 2)] if mine else []
        storm = [*mine, *others, *echoes]
        random.Random(len(storm)).shuffle(storm)
        self.reported += len(storm)
        return tuple(storm)


def test_a_storm_of_notices_at_every_tick() -> None:
    with trial() as made:
        storm = Storm(made.cloud, 10_000)
        made.line.inner = cast("Any", storm)
        began_s = time.process_time()
        assert made.run() == WELL
        assert storm.reported > 100_000
        noticed = [
            recorded.event.node_id
            for recorded in made.ledger.events()
            if isinstance(recorded.event, InterruptionNoticed)
        ]
        assert noticed
        assert len(noticed) == len(set(noticed)), "each is written once"
        assert time.process_time() - began_s < 60


@pytest.mark.parametrize("backed_up", [3, 10, 20])
def test_a_corrupt_page_and_the_way_back(backed_up: int) -> None:
    """A ledger of an hour ago: what was launched since is found again, and nothing is doubled."""

    def corrupt(made: Trial) -> None:
        made.close()
        path = made.folder / LEDGER
        launched = _launched(made)
        pages = path.stat().st_size // PAGE_BYTES
        with path.open("r+b") as file:
            for page in range(2, pages):
                file.seek(page * PAGE_BYTES)
                file.write(random.Random(page).randbytes(PAGE_BYTES))
        backups = Backups(made.folder, 3)
        with pytest.raises(LedgerError, check=has_code("corrupt")):
            backups.check()
        (restored,) = backups.restore(datetime.now(UTC))
        assert restored.file == path
        assert len(_launched(made)) <= len(launched)
        made.daemon = made._start()

    happenings = {backed_up: lambda made: made.daemon.back_up(), backed_up + 15: corrupt}
    with trial(happenings=happenings) as made:
        assert set(made.run().wrong) <= {Wrong.UNASKED}, "only intents are lost"


def _launched(made: Trial) -> Sequence[str]:
    from costopt.ledger.sql_ledger import open_sqlite_ledger

    with open_sqlite_ledger(made.folder / LEDGER) as ledger:
        return [r.event.node_id for r in ledger.events() if isinstance(r.event, NodeLaunched)]
