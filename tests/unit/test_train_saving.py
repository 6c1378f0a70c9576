"""The loop's saves: begun without waiting, told of when they end, and failed only three times."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from costopt.agent.status import TrainerStatus
from costopt.domain.errors import CheckpointError
from costopt.train.cadence import Cadence
from costopt.train.checkpointer import Checkpointer
from costopt.train.group import Group
from costopt.train.reporter import Reporter
from costopt.train.saving import Saving


def saving(folder: Path, status: Path, weights: torch.Tensor, **options: Any) -> Saving:
    return Saving(
        Checkpointer(folder),
        Cadence(interval_s=1e-9),
        Reporter(status, 0),
        Group(),
        lambda: {"weights": weights},
        **options,
    )


def hear(saves: Saving, status: Path, so_long_as: Callable[[TrainerStatus], bool]) -> TrainerStatus:
    for _ in range(2000):
        saves.is_due()
        told = TrainerStatus.read(status)
        if told is not None and not so_long_as(told):
            return told
        time.sleep(0.005)
    raise AssertionError("nothing was told")


def test_a_save_is_reported_once_it_is_durable(tmp_path: Path) -> None:
    status = tmp_path / "status.json"
    saves = saving(tmp_path / "c", status, torch.ones(300_000), overlap=True)
    assert saves.is_due()
    saves.save(7)
    saves.copied()
    told = hear(saves, status, lambda t: not t.checkpoints)
    assert (told.saved_units, told.checkpoints[0].units) == (7.0, 7.0)
    assert Path(told.checkpoints[0].uri, "manifest.json").exists()


def test_a_save_that_is_due_waits_for_the_one_in_flight_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saves = saving(tmp_path / "c", tmp_path / "status.json", torch.ones(300_000))
    saves.save(1)
    assert not saves.is_due()
    assert not saves.is_due()
    saves.save(2)
    assert capsys.readouterr().err.count("still being written") == 1
    saves.save_for_certain(3)
    restored = Checkpointer(tmp_path / "c").restore()
    assert restored is not None
    assert (restored.manifest.step, restored.manifest.parent) == (3, "step-000000001.0.0")


def test_the_third_failure_in_a_row_is_raised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = tmp_path / "status.json"
    (tmp_path / "file").write_text("no folder")
    saves = saving(tmp_path / "file" / "c", status, torch.ones(10))
    for step in (1, 2):
        saves.save(step)
        hear(saves, status, lambda told: "Not a directory" not in told.message)
        status.unlink()
    saves.save(3)
    with pytest.raises(CheckpointError, match="Not a directory"):
        hear(saves, status, lambda t: True)
    assert capsys.readouterr().err.count("Not a directory") == 3


def test_the_interval_grows_to_what_a_save_takes_to_be_durable() -> None:
    cadence = Cadence(interval_s=600, hazard_per_hour=0.5, speed=100)
    cadence.saved(0.0, 9.0)
    assert cadence.interval_s == pytest.approx(900)
    assert not cadence.is_due()
