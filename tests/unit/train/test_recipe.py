"""What decides the numbers is stored and compared where training resumes."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler
from torch.utils.data import TensorDataset

from costopt.domain.errors import CheckpointError, CostoptError
from costopt.train import Checkpointer, attach
from costopt.train.recipe import Recipe, find_differences, run_recipe
from costopt.train.recipe_check import UNKNOWN
from tests.support.errors import has_code

CUT, STEPS = 3, 6


@dataclasses.dataclass
class Config:
    scale: float = 1.0
    kind: str = "pre"


class Net(nn.Module):
    """A user's module, with settings that are not weights."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.drop = nn.Dropout(settings.get("p", 0.1))
        self.last = nn.Linear(16, 4)
        self.temperature = settings.get("temperature", 2)
        self.choice = settings.get("choice", "gelu")
        self.folder = settings.get("folder", "/tmp/one")
        self.act = settings.get("act", torch.tanh)
        self.config = Config(**settings.get("config", {}))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(self.drop(self.act(self.first(x))))
        return found.mul(self.config.scale / self.temperature)


def dataset(count: int = 64, last: float = 1.0) -> TensorDataset:
    values = torch.randn(count, 8, generator=torch.Generator().manual_seed(0))
    values[-1] *= last
    return TensorDataset(values, torch.arange(count) % 4)


class Script:
    """One start of a script, whose settings may be others at the next one."""

    def __init__(self, place: Path | None, **changes: Any) -> None:
        torch.manual_seed(1)
        self.model = changes.pop("model", Net)(**changes.pop("net", {}))
        if "prepare" in changes:
            changes.pop("prepare")(self.model)
        optimizer: Callable[..., torch.optim.Optimizer] = changes.pop("optimizer", adamw)
        self.optimizer = optimizer(self.model)
        schedule = changes.pop("schedule", None)
        self.scheduler: Any = None if schedule is None else schedule(self.optimizer)
        options: dict[str, Any] = {"global_batch": 8, "virtual_shards": 2, "clip_norm": 1.0}
        data = changes.pop("data", None) or dataset()
        options |= {"checkpoint": place, "interval_s": 1e9, **changes}
        self.loop = attach(self.model, self.optimizer, self.scheduler, data, **options)

    def train(self, until: int = STEPS) -> Script:
        for _ in self.loop.steps(until):
            for x, y in self.loop.microbatches():
                with self.loop.microbatch((x, y)):
                    loss: Tensor = nn.functional.cross_entropy(self.model(x), y)
                    loss.backward()  # type: ignore[no-untyped-call]
            self.loop.apply()
        return self

    def weights(self) -> Tensor:
        return torch.cat([p.detach().flatten().double() for p in self.model.parameters()])


def adamw(model: nn.Module, **settings: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), **{"lr": 0.01, **settings})


def freeze(model: nn.Module) -> None:
    next(iter(model.parameters())).requires_grad_(False)


def two_groups(model: nn.Module) -> torch.optim.Optimizer:
    first, *others = model.parameters()
    return torch.optim.AdamW([{"params": others}, {"params": [first]}], lr=0.01)


@dataclasses.dataclass
class Decay:
    """A schedule as an object; PyTorch takes over what it holds from a checkpoint."""

    factor: float

    def __call__(self, step: int) -> float:
        return float(self.factor**step)


CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "lr of group 0": ({}, {"optimizer": lambda m: adamw(m, lr=0.001)}),
    "weight_decay of group 0": ({}, {"optimizer": lambda m: adamw(m, weight_decay=0.3)}),
    "betas of group 0": ({}, {"optimizer": lambda m: adamw(m, betas=(0.8, 0.99))}),
    "amsgrad of group 0": ({}, {"optimizer": lambda m: adamw(m, amsgrad=True)}),
    "clip_norm": ({}, {"clip_norm": 0.01}),
    "optimizer": ({}, {"optimizer": lambda m: torch.optim.Adam(m.parameters(), lr=0.01)}),
    "parameters of group 1": ({}, {"optimizer": two_groups}),
    "scheduler": ({}, {"schedule": lambda o: lr_scheduler.StepLR(o, 2)}),
    "scheduler T_max": (
        {"schedule": lambda o: lr_scheduler.CosineAnnealingLR(o, 10)},
        {"schedule": lambda o: lr_scheduler.CosineAnnealingLR(o, 20)},
    ),
    "scheduler lr_lambdas": (
        {"schedule": lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.9**step)},
        {"schedule": lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.8**step)},
    ),
    "scheduler lr_lambdas ": (
        {"schedule": lambda o: lr_scheduler.LambdaLR(o, Decay(0.9))},
        {"schedule": lambda o: lr_scheduler.LambdaLR(o, Decay(0.8))},
    ),
    "scheduler 1 gamma": (
        {"schedule": lambda o: warmup(o, 0.9)},
        {"schedule": lambda o: warmup(o, 0.5)},
    ),
    "seed": ({}, {"seed": 4}),
    "mode": ({}, {"mode": "close"}),
    "global batch": ({}, {"global_batch": 16}),
    "virtual shards": ({}, {"virtual_shards": 4}),
    "data length": ({}, {"data": dataset(65)}),
    "data sample": ({}, {"data": dataset(64, last=2.0)}),
    "module drop p": ({}, {"net": {"p": 0.5}}),
    "model temperature": ({}, {"net": {"temperature": 3}}),
    "parameter first.weight": ({}, {"prepare": freeze}),
    "weights first.weight": ({}, {"prepare": lambda m: m.first.double()}),
}


def warmup(optimizer: torch.optim.Optimizer, gamma: float) -> Any:
    parts = [
        lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2),
        lr_scheduler.ExponentialLR(optimizer, gamma),
    ]
    return lr_scheduler.SequentialLR(optimizer, parts, milestones=[2])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoints of the script without changes after CUT steps."""
    place = tmp_path_factory.mktemp("trained")
    Script(place).train(CUT)
    return place


@pytest.fixture
def place(trained: Path, tmp_path: Path) -> Path:
    """A copy of these checkpoints."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.mark.process
def test_every_difference_is_named_and_nothing_is_loaded(place: Path) -> None:
    model = Net(p=0.2)
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(CheckpointError) as refused:
        Script(place, model=lambda: model, clip_norm=None, seed=3, optimizer=two_groups)
    named = refused.value.message
    for each in (
        "clip_norm: 1 → None",
        "seed: 0 → 3",
        "drop p: 0.1 → 0.2",
        "parameters of group 0",
    ):
        assert each in named
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))


@pytest.mark.process
@pytest.mark.parametrize("schedule", [None, lambda o: warmup(o, 0.5)], ids=["plain", "schedule"])
def test_the_same_script_resumes_exactly(tmp_path: Path, schedule: Any) -> None:
    whole = Script(None, schedule=schedule).train()
    Script(tmp_path / "cut", schedule=schedule).train(CUT)
    resumed = Script(tmp_path / "cut", schedule=schedule).train()
    assert resumed.loop.guarantee == "exact"
    assert torch.equal(resumed.weights(), whole.weights())


@pytest.mark.process
def test_kept_settings_are_those_that_were_saved(tmp_path: Path) -> None:
    def slower(model: nn.Module) -> torch.optim.Optimizer:
        return adamw(model, lr=0.001, weight_decay=0.3)

    def cosine(steps: int) -> Callable[[torch.optim.Optimizer], Any]:
        return lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, steps)

    whole = Script(None, schedule=cosine(10)).train()
    Script(tmp_path / "cut", schedule=cosine(10)).train(CUT)
    changes = {"optimizer": slower, "schedule": cosine(20), "clip_norm": 0.01, "changed": "keep"}
    kept = Script(tmp_path / "cut", **changes).train()
    assert torch.equal(kept.weights(), whole.weights())
    for name in ("lr of group 0", "weight_decay of group 0", "scheduler T_max", "clip_norm"):
        assert f"{name} stayed" in kept.loop.guarantee
    again = Script(tmp_path / "cut", schedule=cosine(10))
    assert again.loop.guarantee == kept.loop.guarantee, "for the rest of the lineage"
    with pytest.raises(CheckpointError, check=has_code("other_recipe")):
        Script(tmp_path / "cut", optimizer=slower, schedule=cosine(10))


@pytest.mark.process
@pytest.mark.parametrize("name", ["seed", "optimizer", "model temperature", "scheduler lr_lambdas"])
def test_what_was_not_saved_cannot_be_kept(tmp_path: Path, name: str) -> None:
    before, now = CHANGES[name]
    Script(tmp_path, **before).train(CUT)
    with pytest.raises(CheckpointError, check=has_code("other_recipe")):
        Script(tmp_path, **now, changed="keep")


@pytest.mark.process
@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_setting_is_refused_by_name_or_applied(
    trained: Path, tmp_path: Path, name: str
) -> None:
    before, now = CHANGES[name]
    if before:
        Script(tmp_path, **before).train(CUT)
    else:
        shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    with pytest.raises(CheckpointError, check=has_code("other_recipe")) as refused:
        Script(tmp_path, **now)
    assert f"{name.strip()}: " in refused.value.message
    assert "changed=" in (refused.value.hint or "")

    applied = Script(tmp_path, **now, changed="apply")
    assert applied.loop.step == CUT
    assert applied.loop.guarantee.startswith("close: ")
    assert f"{name.strip()} " in applied.loop.guarantee
    fresh = Script(None, **now)
    if name not in ("seed", "mode", "weights first.weight"):
        fresh_group, group = fresh.optimizer.param_groups[0], applied.optimizer.param_groups[0]
        same = [key for key in group if key not in ("params", "lr")]
        assert {k: group[k] for k in same} == {k: fresh_group[k] for k in same}
    if name != "weights first.weight":  # the others take no float64
        applied.train()
    else:
        applied.loop._saving.save_or_raise(CUT)
    again = Script(tmp_path, **now)
    assert again.loop.guarantee == applied.loop.guarantee, "for the rest of the lineage"


@pytest.mark.process
def test_an_applied_schedule_is_where_it_would_be(tmp_path: Path) -> None:
    def halved(optimizer: torch.optim.Optimizer) -> Any:
        return warmup(optimizer, 0.5)

    def twice(model: nn.Module) -> torch.optim.Optimizer:
        return adamw(model, lr=0.02)

    Script(tmp_path / "one", schedule=lambda o: warmup(o, 0.9)).train(5)
    applied = Script(tmp_path / "one", schedule=halved, optimizer=twice, changed="apply")
    whole = Script(None, schedule=halved, optimizer=twice).train(5)
    assert applied.optimizer.param_groups[0]["lr"] == whole.optimizer.param_groups[0]["lr"]
    assert applied.scheduler.state_dict() == whole.scheduler.state_dict()


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("folder", {"net": {"folder": "/tmp/two"}}),
        ("collate", {"collate": lambda rows: torch.utils.data.default_collate(rows[:])}),
        ("data", {"data": lambda step, shard: dataset()[4 * shard : 4 * shard + 4]}),
    ],
)
def test_what_may_not_matter_voids_exactness_alone(
    place: Path, name: str, change: dict[str, Any]
) -> None:
    options = {"changed": "apply"} if name == "data" else {}
    guarantee = Script(place, **change, **options).loop.guarantee
    assert guarantee.startswith("close: ")
    assert name in guarantee


@pytest.mark.process
def test_other_choices_of_a_module_are_refused(place: Path) -> None:
    changes: list[dict[str, Any]] = [
        {"choice": "relu"},
        {"act": torch.relu},
        {"act": lambda x: x.clamp_min(0)},
        {"config": {"scale": 2.0}},
        {"config": {"kind": "post"}},
    ]
    for change in changes:
        with pytest.raises(CheckpointError, check=has_code("other_recipe")):
            Script(place, net=change)


@pytest.mark.process
def test_a_checkpoint_without_a_recipe_is_not_called_exact(place: Path) -> None:
    saver = Checkpointer(place)
    restored = saver.restore()
    assert restored is not None
    state = {k: v for k, v in restored.state.items() if k not in ("recipe", "devices")}
    saver.save(CUT + 1, {**state, "step": CUT + 1})
    saver.close()
    old = Script(place, optimizer=lambda m: adamw(m, weight_decay=0.7))
    assert old.loop.step == CUT + 1
    assert old.loop.guarantee == f"close: {UNKNOWN}"
    assert old.optimizer.param_groups[0]["weight_decay"] == 0.01, "as it was saved"
    new = Script(place, optimizer=lambda m: adamw(m, weight_decay=0.7), changed="apply")
    assert new.optimizer.param_groups[0]["weight_decay"] == 0.7
    assert new.loop.guarantee == f"close: {UNKNOWN}"


def test_other_words_than_the_three_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CostoptError, match="changed='yes'"):
        Script(tmp_path, changed="yes")


def test_a_recipe_does_not_follow_what_moves() -> None:
    model = Net()
    optimizer = adamw(model)
    scheduler = lr_scheduler.CosineAnnealingLR(optimizer, 10)
    before = run_recipe(model, optimizer, scheduler)
    for _ in range(4):
        optimizer.step()
        scheduler.step()
    compiled: Any = torch.compile(model, backend="eager")
    after = run_recipe(compiled, optimizer, scheduler)
    assert find_differences(before.settings, after.settings) == []
    assert Recipe.decode(before.encode()) == before
    assert [Recipe.decode(each) for each in (None, "", "{}", "[1]", b"x")] == [None] * 5


def test_numbers_of_other_types_are_the_same_setting() -> None:
    numpy = pytest.importorskip("numpy")
    model = Net()
    recipes = [
        run_recipe(model, torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=decay))
        for decay in (1, 1.0, numpy.float64(1.0))
    ]
    assert len({recipe.digest() for recipe in recipes}) == 1


@pytest.mark.process
def test_a_refused_script_supersedes_no_training(tmp_path: Path) -> None:
    running = Script(tmp_path)
    running.train(CUT)
    head = (tmp_path / "HEAD").read_bytes()
    for _ in range(3):
        with pytest.raises(CheckpointError, check=has_code("other_recipe")):
            Script(tmp_path, seed=9)
    assert (tmp_path / "HEAD").read_bytes() == head
    running.train()
    assert running.loop.step == STEPS


def test_what_contains_itself_has_a_recipe() -> None:
    class Callable:
        def __init__(self) -> None:
            self.again: Any = [self]
            self.function: Any = lambda: self.function

        def __call__(self) -> None: ...

    model: Any = Net()
    model.loop = [1]
    model.loop.append(model.loop)
    model.object = Callable()
    model.table = {object(): 1}
    first, second = (run_recipe(model, adamw(model), data=Callable()) for _ in range(2))
    assert first == second
