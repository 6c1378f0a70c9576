"""An optimizer's state is restored as it was, whatever it holds and whatever the weights' dtype."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from costopt.domain.errors import CheckpointError
from costopt.train import Checkpointer, ShardedCheckpointer, attach
from costopt.train.group import RankGroup
from costopt.train.optimizer_state import load_optimizer_state, unusual_devices
from costopt.train.recipe import run_recipe
from costopt.train.recipe_check import RecipeCheck
from costopt.train.run_state import (
    ExactnessGuarantee,
    RunState,
    TrainingState,
    runtime_conditions,
)
from tests.support.errors import has_code

STEPS, PARTIAL = 8, 4


class Span(NamedTuple):
    """A container that PyTorch's own loading cannot build."""

    low: float
    high: Any


class OwnOptimizer(Optimizer):
    """float32 masters of any weights, an int8 momentum with its scale in a nested dict, and more
    than tensors."""

    def __init__(self, params: Any, lr: float = 0.05) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                assert parameter.grad is not None
                state = self.state[parameter]
                gradient = parameter.grad.float()
                if not state:
                    state["master"] = parameter.detach().float().clone()
                    state["step"] = torch.tensor(0, dtype=torch.int64)
                    state["low"] = {"codes": torch.zeros_like(parameter, dtype=torch.int8)}
                    state["low"]["scale"] = torch.ones((), dtype=torch.float64)
                    state["name"], state["seen"] = "own", (1, torch.zeros(2, dtype=torch.float32))
                low = state["low"]
                momentum = low["codes"].float() * low["scale"].float() * 0.9 + gradient
                low["scale"] = (momentum.abs().max().double() / 127).clamp_min(1e-12)
                low["codes"] = (momentum / low["scale"].float()).round().to(torch.int8)
                state["step"] += 1
                state["master"].add_(momentum, alpha=-group["lr"])
                parameter.copy_(state["master"].to(parameter.dtype))
        self.state["all"]["steps"] = self.state["all"].get("steps", 0) + 1  # type: ignore[index]


class MasterAdamW(torch.optim.AdamW):
    """AdamW whose moments are float32 whatever the weights' dtype."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    for key in ("exp_avg", "exp_avg_sq", "master"):
                        state[key] = torch.zeros_like(parameter, dtype=torch.float32)
                    state["master"].copy_(parameter)
                    state["step"] = torch.tensor(0.0)
                assert parameter.grad is not None
                gradient = parameter.grad.float()
                state["step"] += 1
                state["exp_avg"].lerp_(gradient, 0.1)
                state["exp_avg_sq"].lerp_(gradient.square(), 0.001)
                change = state["exp_avg"] / (state["exp_avg_sq"].sqrt() + group["eps"])
                state["master"].add_(change, alpha=-group["lr"])
                parameter.copy_(state["master"])


class OwnLoading(MasterAdamW):
    """One that has a loading of its own, which casts as PyTorch does."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(copy.deepcopy(state_dict))


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "own": OwnOptimizer,
    "masters": MasterAdamW,
    "own loading": OwnLoading,
    "adamw": torch.optim.AdamW,
    "amsgrad": lambda p: torch.optim.Adam(p, amsgrad=True, foreach=True),
    "fused": lambda p: torch.optim.AdamW(p, fused=True),
    "nadam": lambda p: torch.optim.NAdam(p, foreach=False),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, momentum=0.5, centered=True),
    "adafactor": torch.optim.Adafactor,
    "asgd": torch.optim.ASGD,
}
DTYPES = [torch.bfloat16, torch.float32]


def data(step: int, number: int) -> Tensor:
    draw = torch.Generator().manual_seed(2 * step + number)
    return torch.randn(4, 8, generator=draw)


def make(dtype: torch.dtype, optimizer: str) -> tuple[nn.Module, Optimizer]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).to(dtype)
    return model, OPTIMIZERS[optimizer](model.parameters())


def train(place: Path | None, until: int, dtype: torch.dtype, optimizer: str) -> Any:
    model, made = make(dtype, optimizer)
    job = attach(
        model,
        made,
        None,
        data,
        global_batch=8,
        virtual_shards=2,
        checkpoint=place,
        interval_s=1e9,
    )
    for _ in job.steps(until):
        for batch in job.microbatches():
            with job.microbatch(batch):
                model(batch.to(dtype)).float().square().mean().backward()
        job.apply()
    return job.guarantee, plain(model.state_dict()), plain(made.state_dict())


def plain(value: Any) -> Any:
    """Values with the bits, dtypes and devices of tensors, for a comparison."""
    if isinstance(value, Tensor):
        bits = value.detach().contiguous().view(-1).view(torch.uint8).tolist()
        return value.dtype, value.shape, value.device, bits
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value).__name__, [plain(inner) for inner in value]
    return value


@pytest.mark.process
@pytest.mark.parametrize("dtype", DTYPES, ids=["bfloat16", "float32"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_run_that_resumes_has_the_same_bits(
    tmp_path: Path, optimizer: str, dtype: torch.dtype
) -> None:
    if optimizer == "fused" and dtype is torch.bfloat16:
        pytest.skip("this CPU's fused kernels take float32 alone")
    whole = train(None, STEPS, dtype, optimizer)
    train(tmp_path / "cut", PARTIAL, dtype, optimizer)
    assert train(tmp_path / "cut", STEPS, dtype, optimizer) == whole
    assert whole[0] == "exact"


def stepped(dtype: torch.dtype, optimizer: str) -> tuple[nn.Module, Optimizer]:
    model, made = make(dtype, optimizer)
    train_on(model, made, dtype)
    return model, made


def train_on(model: nn.Module, made: Optimizer, dtype: torch.dtype) -> None:
    for step in range(3):
        model(data(step, 0).to(dtype)).float().square().mean().backward()
        made.step()
        made.zero_grad()


@pytest.mark.process
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_checkpointer_alone_restores_the_same_state(tmp_path: Path, optimizer: str) -> None:
    _, before = stepped(torch.float32 if optimizer == "fused" else torch.bfloat16, optimizer)
    saver = Checkpointer(tmp_path)
    saver.save(3, {"optimizer": before.state_dict()})
    restored = saver.restore()
    saver.close()
    assert restored is not None
    _, after = make(torch.float32 if optimizer == "fused" else torch.bfloat16, optimizer)
    load_optimizer_state(after, restored.state["optimizer"])
    assert plain(after.state_dict()) == plain(before.state_dict())


@pytest.mark.process
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_sharded_checkpointer_restores_the_same_state(tmp_path: Path, optimizer: str) -> None:
    dtype = torch.float32 if optimizer == "fused" else torch.bfloat16
    model, before = stepped(dtype, optimizer)
    other, after = make(dtype, optimizer)
    fresh = ShardedCheckpointer(tmp_path, other, after)
    saver = ShardedCheckpointer(tmp_path, model, before)
    saver.save(3)
    saver.close()
    restored = fresh.restore()
    assert restored is not None
    assert restored.changed == ()
    assert plain(after.state_dict()) == plain(before.state_dict())
    assert plain(other.state_dict()) == plain(model.state_dict())


class Sent(RankGroup):
    """One of two ranks; rank 1 receives what rank 0 has sent."""

    def __init__(self, rank: int, sent: list[Any]) -> None:
        self.size, self.rank, self.device = 2, rank, torch.device("cpu")
        self._sent = sent

    def send(self, tensor: Tensor, source: int) -> None:
        if self.rank == source:
            self._sent.append(tensor.clone())
        else:
            tensor.copy_(self._sent.pop(0))


def run_state(group: RankGroup, model: nn.Module, optimizer: Optimizer) -> RunState:
    conditions = runtime_conditions()
    recipe = RecipeCheck(run_recipe(model, optimizer), "refuse", optimizer, None, conditions)
    return RunState(
        TrainingState(model, optimizer, None),
        group=group,
        guarantee=ExactnessGuarantee(),
        conditions=conditions,
        recipe=recipe,
    )


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_process_that_joins_takes_the_same_state(optimizer: str) -> None:
    dtype = torch.float32 if optimizer == "fused" else torch.bfloat16
    model, before = make(dtype, optimizer)
    other, after = make(dtype, optimizer)
    sent: list[Any] = []
    source = run_state(Sent(0, sent), model, before)
    joiner = run_state(Sent(1, sent), other, after)
    train_on(model, before, dtype)
    source.step = 3
    source.align(0)
    joiner.align(0)
    assert not sent
    assert joiner.step == 3
    assert plain(after.state_dict()) == plain(before.state_dict())
    assert str(joiner.guarantee) == "exact"


def test_a_process_with_other_settings_does_not_join() -> None:
    model, before = make(torch.float32, "adamw")
    other, _ = make(torch.float32, "adamw")
    sent: list[Any] = []
    source = run_state(Sent(0, sent), model, before)
    slower = torch.optim.AdamW(other.parameters(), lr=0.5)
    joiner = run_state(Sent(1, sent), other, slower)
    source.align(0)
    with pytest.raises(CheckpointError, match="lr of group 0") as refused:
        joiner.align(0)
    assert refused.value.code == "other_recipe"


def test_kernels_stay_as_the_script_chose_them() -> None:
    parameter = nn.Parameter(torch.ones(4))
    before = torch.optim.AdamW([parameter], lr=0.5, foreach=True)
    parameter.grad = torch.ones(4)
    before.step()
    after = torch.optim.AdamW([parameter], lr=0.1, fused=True)
    load_optimizer_state(after, before.state_dict())
    (group,) = after.param_groups
    assert (group["lr"], group["fused"], group["foreach"]) == (0.5, True, None)
    assert after.state[parameter]["step"].dtype is torch.float32
    after.step()


def test_tensors_go_to_where_they_were() -> None:
    own = nn.Parameter(torch.ones(4, device="meta"))
    before = torch.optim.SGD([own], lr=0.1)
    before.state[own] = {
        "step": torch.tensor(3.0),
        "master": torch.ones(4),
        "nested": {"codes": [torch.ones(4, device="meta", dtype=torch.int8), torch.ones(2)]},
        "span": Span(0.5, torch.ones(2)),
    }
    devices = unusual_devices(before)
    assert devices == {"0/master": "cpu", "0/nested/codes/1": "cpu", "0/span/1": "cpu"}
    state = before.state_dict()
    state["state"][0]["nested"]["codes"][0] = torch.ones(4, dtype=torch.int8)
    after = torch.optim.SGD([own], lr=0.1)
    load_optimizer_state(after, state, devices)
    found = after.state[own]
    assert [found["step"].device.type, found["master"].device.type] == ["cpu", "cpu"]
    assert [each.device.type for each in found["nested"]["codes"]] == ["meta", "cpu"]
    assert type(found["span"]) is Span
    assert found["span"].high.device.type == "cpu"


def test_other_groups_are_refused_and_change_nothing() -> None:
    _, before = stepped(torch.float32, "adamw")
    model, _ = make(torch.float32, "adamw")
    first, *others = model.parameters()
    after = torch.optim.AdamW([{"params": [first]}, {"params": others}], lr=0.3)
    untouched = plain(after.state_dict())
    with pytest.raises(CheckpointError, check=has_code("other_model")):
        load_optimizer_state(after, before.state_dict())
    assert plain(after.state_dict()) == untouched
