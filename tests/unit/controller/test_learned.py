"""What a controller learned is known to the one after it."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from costopt.controller.forecasts import DEFAULT_HAZARD
from costopt.controller.learned_state import LearnedState
from costopt.domain.market import Offer
from costopt.market.hazard import LearnedHazard
from costopt.market.lifetime import LifetimeModel
from tests.support.engine_fixtures import SPOT_A
from tests.support.market_fixtures import T0

KEY = ("job", str(SPOT_A), 1)
NOW = T0 + timedelta(hours=5)


class Controller:
    """What of a controller learns."""

    def __init__(self, folder: Path) -> None:
        self.lifetimes = LifetimeModel()
        self.hazards = LearnedHazard(lambda _: DEFAULT_HAZARD)
        self.learned = LearnedState(folder / "learned.json", self.lifetimes, self.hazards)

    def watch(self) -> None:
        for tick in range(30):
            now, up = T0 + timedelta(minutes=10 * tick), tick % 7 < 4
            self.lifetimes.observe(KEY, "aws/us-east-1", up, now)
            self.hazards.observe([Offer(SPOT_A, None, None, int(up))], now)

    def knows(self) -> object:
        hazard, share = self.hazards.hazard_per_hour(SPOT_A), self.hazards.availability(SPOT_A)
        return self.lifetimes, self.hazards.to_json(), hazard, share


def test_the_next_controller_knows_the_same(tmp_path: Path) -> None:
    first = Controller(tmp_path)
    first.watch()
    assert first.learned.save(NOW) is None
    second = Controller(tmp_path)
    assert second.knows() != first.knows()
    assert second.learned.load(NOW) is None
    assert second.knows() == first.knows()


def test_a_run_that_begins_from_scratch_knows_nothing(tmp_path: Path) -> None:
    first = Controller(tmp_path)
    first.watch()
    first.learned.save(NOW)
    second = Controller(tmp_path)
    assert second.learned.forget() is None
    assert second.learned.load(NOW) is None
    assert second.knows() == Controller(tmp_path).knows()


def _with(data: bytes, name: str, value: object) -> bytes:
    body = json.loads(data)
    body[name] = value
    return json.dumps(body).encode()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"",
        lambda data: data[:-20],
        lambda data: data.replace(b"up_h", b"UP_h", 1),
        lambda data: data.replace(b":0.", b":7.", 1),
        lambda data: _with(data, "schema", "costopt.learned/2"),
        lambda data: _with(data, "learned", []),
        lambda data: b"[]",
        lambda data: b"\xff\xfe",
    ],
)
def test_a_damaged_file_is_reported_once_and_lifetimes_begin_at_the_prior(
    tmp_path: Path, spoil: object
) -> None:
    first = Controller(tmp_path)
    first.watch()
    first.learned.save(NOW)
    path = tmp_path / "learned.json"
    assert callable(spoil)
    damaged = spoil(path.read_bytes())
    assert damaged != path.read_bytes()
    path.write_bytes(damaged)
    second = Controller(tmp_path)
    reported = second.learned.load(NOW)
    assert reported is not None
    assert str(path) in reported
    assert "restart from the prior" in reported
    assert second.knows() == Controller(tmp_path).knows()
    assert second.learned.save(NOW) is None
    assert Controller(tmp_path).learned.load(NOW) is None


def test_what_is_of_a_later_time_is_not_believed(tmp_path: Path) -> None:
    first = Controller(tmp_path)
    first.watch()
    first.learned.save(NOW)
    reported = Controller(tmp_path).learned.load(T0)
    assert reported is not None
    assert "later time" in reported


def test_a_file_that_cannot_be_written_is_reported_once(tmp_path: Path) -> None:
    controller = Controller(tmp_path / "missing")
    reported = [controller.learned.save(NOW + timedelta(minutes=tick)) for tick in range(3)]
    assert reported[0] is not None
    assert "cannot be written" in reported[0]
    assert reported[1:] == [None, None]
    (tmp_path / "missing").mkdir()
    assert controller.learned.save(NOW) is None
    assert Controller(tmp_path / "missing").learned.load(NOW) is None
