"""``costopt calibrate``: previews, measures on a node of its own, and writes the speed."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml

from costopt.domain import events as ev
from costopt.ledger.sql_ledger import open_sqlite_ledger
from tests.support.live_run import SPEED, Place

pytestmark = pytest.mark.process
PACE_S = 0.05
ARGUMENTS = (
    *("calibrate", "job.yaml", "--market", "market.parquet", "--speed", str(SPEED)),
    *("--for", "10m", "--state-dir", "state"),
)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path, steps=100_000, deadline="60d", nodes=1)
    place.run = place.stepper(PACE_S)
    return place.write()


def test_without_apply_nothing_is_launched_or_written(place: Place) -> None:
    before = (place.folder / "job.yaml").read_bytes()
    done = place.call(*ARGUMENTS)
    assert done.returncode == 0, done.stderr
    assert "g4dn.xlarge" in done.stdout
    assert not place.state.exists()
    assert (place.folder / "job.yaml").read_bytes() == before


def test_jobs_without_a_speed_of_one_node_are_refused(place: Place) -> None:
    path = place.folder / "job.yaml"
    path.write_text(path.read_text() + "model: {params: 70e9, method: full, sequence: 2048}\n")
    done = place.call(*ARGUMENTS)
    assert done.returncode == 3
    assert "GPUs of 16 GiB" in done.stderr
    path.write_text(
        "name: many\ndeadline: 9h\nrun: [a]\narray: {tasks: 4, duration: 1m, parallel: 1..4}\n"
        "resources: {gpu_models: [T4]}\n"
    )
    done = place.call(*ARGUMENTS)
    assert done.returncode == 2
    assert "array.duration" in done.stderr


def test_the_measured_speed_is_written_into_the_file(place: Place) -> None:
    path = place.folder / "job.yaml"
    path.write_text(f"# my job\n{path.read_text()}")
    path.chmod(0o640)
    before = path.read_text()
    done = place.call(*ARGUMENTS, "--apply")
    assert done.returncode == 0, done.stderr
    after = path.read_text()
    (point,) = yaml.safe_load(after)["throughput"]["points"]
    assert point["gpus"] == 1
    assert 0.1 < point["units_per_s"] * PACE_S * SPEED <= 1.1
    assert after.splitlines()[0] == "# my job"
    lines = zip(before.splitlines(), after.splitlines(), strict=True)
    (change,) = [pair for pair in lines if pair[0] != pair[1]]
    assert {f"-{change[0]}", f"+{change[1]}"} <= set(done.stdout.splitlines())
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    with open_sqlite_ledger(place.state / "ledger.sqlite") as ledger:
        (name,) = ledger.jobs()
        events = [each.event for each in ledger.events(name)]
    launched = [each for each in events if isinstance(each, ev.NodeLaunched)]
    released = [each for each in events if isinstance(each, ev.NodeEnded)]
    assert len(launched) == len(released) == 1
