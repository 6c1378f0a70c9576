"""What a state holds beside tensors is stored as it is, or refused by name before training."""

from __future__ import annotations

import io
import threading
from collections import deque
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

from costopt.domain.errors import CheckpointError
from costopt.train import Checkpointer, attach
from costopt.train.safe_objects import check_objects, load_objects, numpy_value, pack_objects
from tests.support.errors import has_code

VALUES = [
    np.float64(1e-3) * np.sqrt(8 / 256),
    np.float32(0.1),
    np.float16(0.1),
    np.longdouble(1) / 3,
    np.int64(-3),
    np.uint8(200),
    np.bool_(True),
    np.complex64(1 + 2j),
    np.str_("warm"),
    np.bytes_(b"\0\xff"),
    np.datetime64("2026-03-29T01:00"),
    np.array(2.5),
    np.array([]),
    np.arange(6, dtype=">i2").reshape(2, 3).T,
    np.array(["a", "bcd"]),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_numpy_values_come_back_as_they_were(value: Any) -> None:
    found = load_objects(pack_objects({"a": [value], "b": (1, {"c": value})}))
    for again in (found["a"][0], found["b"][1]["c"]):
        assert type(again) is type(value)
        assert (again.dtype, again.shape) == (value.dtype, value.shape)
        assert again.tobytes() == value.tobytes()


def test_an_array_that_came_back_can_be_changed() -> None:
    again = load_objects(pack_objects(np.zeros(3)))
    again += 1
    assert again.tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtype", ["|O", "|V8", "<i4,O"])
def test_arrays_of_objects_are_not_made(dtype: str) -> None:
    with pytest.raises(ValueError, match="not stored"):
        numpy_value(dtype, (1,), "\0" * 8)


class Setting:
    """A class of the user."""


class Unpicklable:
    """One whose pickling fails in its own way."""

    def __reduce__(self) -> Any:
        raise RuntimeError("no\nway")


UNSAFE: dict[str, Any] = {
    "lr (decimal.Decimal)": Decimal("0.1"),
    f"lr ({__name__}.Setting)": Setting(),
    f"lr ({__name__}.Unpicklable)": Unpicklable(),
    "lr (_thread.lock)": threading.Lock(),
    "lr (function)": lambda: 0.1,
    "lr (numpy.ndarray)": np.array([Decimal(1)]),
    "lr (numpy.void)": np.zeros(1, "i4,f4")[0],
    "lr (collections.deque)": deque([1.0]),
    "lr (range)": range(2),
    "lr (frozenset)": frozenset({1}),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_other_objects_are_named(name: str) -> None:
    with pytest.raises(CheckpointError, check=has_code("unsafe_objects")) as refused:
        check_objects({"groups": [{"eps": 1.0}, {"lr": UNSAFE[name]}]})
    assert f"groups.1.{name}" in refused.value.message
    assert "\x1b" not in str(refused.value)


def test_at_most_a_few_objects_are_named() -> None:
    with pytest.raises(CheckpointError) as refused:
        check_objects([Decimal(n) for n in range(9)])
    assert "4 (decimal.Decimal), and 4 more" in refused.value.message


def test_a_checkpoint_with_unsafe_objects_names_their_classes() -> None:
    packed = io.BytesIO()
    torch.save({"a": Decimal(1)}, packed)
    with pytest.raises(CheckpointError, check=has_code("unsafe_objects")) as refused:
        load_objects(packed.getvalue())
    assert "decimal.Decimal" in refused.value.message
    assert "\x1b" not in refused.value.message


class Script:
    """A start of a training with these settings."""

    def __init__(
        self,
        place: Path | None,
        settings: dict[str, Any],
        schedule: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> None:
        torch.manual_seed(1)
        self.model = nn.Linear(8, 4)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), **settings)
        self.scheduler = None if schedule is None else schedule(self.optimizer)
        data = torch.utils.data.TensorDataset(
            torch.randn(64, 8, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 4
        )
        options = {"global_batch": 8, "virtual_shards": 1, "interval_s": 1e9, **options}
        self.loop = attach(
            self.model, self.optimizer, self.scheduler, data, checkpoint=place, **options
        )

    def train(self, until: int) -> list[float]:
        for _ in self.loop.steps(until):
            for x, y in self.loop.microbatches():
                with self.loop.microbatch((x, y)):
                    loss: Tensor = nn.functional.cross_entropy(self.model(x), y)
                    loss.backward()  # type: ignore[no-untyped-call]
                    self.loop.observe(loss)
            self.loop.apply()
        return [*self.model.weight.flatten().tolist(), float(self.optimizer.param_groups[0]["lr"])]


NUMPY_SETTINGS: dict[str, dict[str, Any]] = {
    "optimizer": {
        "settings": {"lr": np.float32(0.01), "betas": (np.float64(0.8), 0.9), "eps": np.float64(1)},
        "schedule": lambda o: lr_scheduler.SequentialLR(
            o,
            [
                lr_scheduler.MultiStepLR(o, list(np.arange(2, 8, 3)), gamma=np.float64(0.5)),
                lr_scheduler.CosineAnnealingLR(o, 9, eta_min=np.float32(1e-4)),  # type: ignore[arg-type]
            ],
            milestones=[np.int64(5)],  # type: ignore[list-item]
        ),
    },
    "attach": {
        "settings": {"lr": 1e-3 * np.sqrt(8 / 256)},
        "global_batch": np.int64(8),
        "virtual_shards": np.int64(1),
        "seed": np.int64(3),
        "clip_norm": np.float64(0.5),
        "interval_s": np.float64(1e9),
        "keep": np.int64(2),
    },
}


@pytest.mark.process
@pytest.mark.parametrize("name", NUMPY_SETTINGS)
def test_numpy_settings_resume_to_the_same_bits(name: str, tmp_path: Path) -> None:
    whole = Script(None, **NUMPY_SETTINGS[name]).train(6)
    Script(tmp_path, **NUMPY_SETTINGS[name]).train(3)
    again = Script(tmp_path, **NUMPY_SETTINGS[name])
    assert again.loop.step == 3
    assert again.train(6) == whole
    assert again.loop.guarantee == "exact"


@pytest.mark.process
def test_attach_names_what_could_not_be_saved(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, check=has_code("unsafe_objects")) as refused:
        Script(tmp_path, {"lr": 0.1}, _add_range)
    assert "optimizer.param_groups.0.warm (range)" in refused.value.message
    assert not list(tmp_path.rglob("manifest.json"))


def _add_range(optimizer: Any) -> None:
    optimizer.param_groups[0]["warm"] = range(3)


@pytest.mark.process
def test_a_state_that_cannot_be_pickled_is_a_checkpoint_error(tmp_path: Path) -> None:
    checkpointer = Checkpointer(tmp_path)
    checkpointer.save(1, {"a": 1})
    with pytest.raises(CheckpointError, check=has_code("unsafe_objects")):
        checkpointer.save(2, {"a": {"lock": threading.Lock()}})
    assert checkpointer.save(3, {"a": 2}).units == 3
