"""What cannot be trained, saved or restored is refused in words, not where a step fails later."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer, lr_scheduler

from costopt.domain.errors import CheckpointError, CostoptError
from costopt.train import Checkpointer, ShardedCheckpointer, attach, load_optimizer_state
from tests.support.errors import has_code

DATA = torch.utils.data.TensorDataset(torch.zeros(64, 8), torch.zeros(64, dtype=torch.long))


def start(
    optimizer: Callable[[nn.Module], Any],
    *,
    model: Any = None,
    schedule: Callable[[Any], Any] = lambda optimizer: None,
    **options: Any,
) -> Any:
    model = nn.Linear(8, 4) if model is None else model
    made = optimizer(model)
    options = {"global_batch": 8, "virtual_shards": 2, **options}
    return attach(model, made, schedule(made), DATA, **options)


def adamw(model: nn.Module) -> Optimizer:
    return torch.optim.AdamW(model.parameters())


class NotConsolidated(torch.optim.AdamW):
    """As ZeroRedundancyOptimizer, whose state lies on several ranks."""

    def state_dict(self) -> dict[str, Any]:
        raise RuntimeError("Optimizer state has not been consolidated on this rank.")


class WithLoss(torch.optim.SGD):
    """One whose step needs the loss."""

    def step(self, *, loss: Any) -> None:  # type: ignore[override]
        super().step(lambda: loss)


OPTIMIZERS: dict[str, tuple[Callable[[nn.Module], Any], str]] = {
    "closure": (lambda m: torch.optim.LBFGS(m.parameters()), "closure"),
    "loss": (lambda m: WithLoss(m.parameters(), lr=0.1), "loss"),
    "sparse": (lambda m: torch.optim.SparseAdam(list(m.parameters())), "sparse"),
    "no state": (lambda m: NotConsolidated(m.parameters()), "consolidated"),
    "none": (lambda _: None, "None"),
    "several": (lambda m: [adamw(m), adamw(m)], "list"),
    "class": (lambda _: torch.optim.AdamW, "class AdamW"),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_that_cannot_be_used_are_refused(name: str) -> None:
    make, named = OPTIMIZERS[name]
    with pytest.raises(CostoptError, match=named, check=has_code("unsupported_optimizer")):
        start(make)


def test_parameters_that_are_not_the_models_are_refused() -> None:
    with pytest.raises(CostoptError, match="1 of the 3", check=has_code("foreign_parameter")):
        start(lambda m: torch.optim.AdamW([*m.parameters(), nn.Parameter(torch.zeros(3))]))


def test_an_optimizer_of_a_part_of_the_model_is_accepted() -> None:
    assert start(lambda m: torch.optim.AdamW(list(m.parameters())[:1])).step == 0


@pytest.mark.parametrize(
    ("schedule", "named"),
    [
        (lr_scheduler.ReduceLROnPlateau, "metrics"),
        (lambda _: 5, "int"),
        (lambda _: lr_scheduler.StepLR, "class StepLR"),
        (lambda o: [lr_scheduler.StepLR(o, 2)], "list"),
    ],
)
def test_schedules_that_cannot_be_stepped_are_refused(
    schedule: Callable[[Any], Any], named: str
) -> None:
    with pytest.raises(CostoptError, match=named, check=has_code("unsupported_scheduler")):
        start(adamw, schedule=schedule)


def test_a_schedule_has_no_required_argument_once_it_wraps_the_optimizers_step() -> None:
    loop = start(adamw, schedule=lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=9))
    assert loop.step == 0


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"global_batch": 8.0}, "global_batch"),
        ({"virtual_shards": "2"}, "virtual_shards"),
        ({"seed": None}, "seed"),
        ({"model": lambda x: x}, "Module"),
    ],
)
def test_arguments_of_another_kind_are_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(CostoptError, match=named):
        start(lambda _: adamw(nn.Linear(8, 4)), **options)


FOREIGN_STATES: list[dict[str, Any]] = [
    {"step": 3},
    {"model": {}, "optimizer": {}},
    {"parts": {}, "conditions": {}},
    {name: {"model": 5} for name in ("parts", "conditions")},
]


@pytest.mark.process
def test_the_checkpoints_of_another_loop_are_refused(tmp_path: Path) -> None:
    for number, state in enumerate(FOREIGN_STATES):
        place = tmp_path / str(number)
        checkpointer = Checkpointer(place)
        checkpointer.save(3, state)
        checkpointer.close()
        with pytest.raises(CheckpointError, check=has_code("not_attached")):
            start(adamw, checkpoint=place)


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"state": {}},
        {"param_groups": [{"params": [0, 1]}]},
        {"state": {}, "param_groups": [{}]},
        {"state": {}, "param_groups": [5]},
        {"state": [], "param_groups": [{"params": [0, 1]}]},
        {"state": {}, "param_groups": None},
        None,
    ],
)
def test_what_is_not_an_optimizers_state_is_refused(state: Any) -> None:
    with pytest.raises(CheckpointError, check=has_code("other_model")):
        load_optimizer_state(adamw(nn.Linear(8, 4)), state)


class Wrapper(Optimizer):
    """As accelerate's: without what ``Optimizer.__init__`` makes."""

    def __init__(self, inner: Optimizer) -> None:
        self.inner = inner

    def state_dict(self) -> dict[str, Any]:
        return self.inner.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.inner.load_state_dict(state_dict)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["inner"], name)


def test_the_state_of_a_wrapped_optimizer_is_loaded() -> None:
    model = nn.Linear(8, 4)
    saved = torch.optim.SGD(model.parameters(), lr=0.5).state_dict()
    wrapper = Wrapper(torch.optim.SGD(model.parameters(), lr=0.1))
    load_optimizer_state(wrapper, saved)
    assert wrapper.inner.param_groups[0]["lr"] == 0.5


def test_sharded_checkpoints_of_another_kind_are_refused(tmp_path: Path) -> None:
    model = nn.Linear(8, 4)
    ShardedCheckpointer(tmp_path, model, adamw(model)).save(3)
    with pytest.raises(CheckpointError, match="saved sharded"):
        start(adamw, checkpoint=tmp_path)
