"""Ranks that should hold the same weights find out in their votes when one does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from costopt.agent.membership import Membership
from costopt.agent.membership_server import MembershipServer
from costopt.protocol.trainer_files import TrainerStatus
from costopt.train.sharded_ranks import ShardRanks
from costopt.train.weight_check import (
    MIN_PORTION,
    PORTIONS,
    WeightComparison,
    WeightDigest,
    describe_difference,
    differing_ranks,
)
from tests.support.forked_trainers import STEPS, TrainerFactory, result

FLIPPED_AT = 6


def model(dtype: torch.dtype = torch.float32, numbers: int = 100) -> nn.Module:
    torch.manual_seed(1)
    return nn.ParameterList(
        [nn.Parameter(torch.ones(numbers).to(dtype)), nn.Parameter(torch.tensor(2.0).to(dtype))]
    )


def flip(tested: nn.Module, index: int) -> None:
    first = next(tested.parameters()).data
    first.view(torch.uint8)[index * first.element_size()] ^= 1


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float64, torch.float8_e4m3fn, torch.complex64]
)
def test_one_bit_changes_the_digest(dtype: torch.dtype) -> None:
    before, after = model(dtype), model(dtype)
    assert WeightDigest(before).of(3) == WeightDigest(after).of(3)
    flip(after, 41)
    assert WeightDigest(before).of(3) != WeightDigest(after).of(3)


def test_every_weight_of_a_large_model_is_compared_within_some_steps() -> None:
    numbers = 3 * MIN_PORTION + 7
    for index in (0, MIN_PORTION - 1, MIN_PORTION, numbers - 1):
        before, after = model(numbers=numbers), model(numbers=numbers)
        flip(after, index)
        pair = WeightDigest(before), WeightDigest(after)
        found = [step for step in range(PORTIONS) if pair[0].of(step) != pair[1].of(step)]
        assert 0 < len(found) < PORTIONS, "a part of the weights in each step"
        assert pair[0].of(0, whole=True) != pair[1].of(0, whole=True)


def test_what_the_most_ranks_hold_is_the_reference() -> None:
    assert differing_ranks([7.0, 7.0, 7.0]) == []
    assert differing_ranks([3.0, 7.0, 7.0]) == [0]
    assert differing_ranks([7.0, 3.0]) == [1]
    assert differing_ranks([]) == []
    words = describe_difference("rank", [1, 3], range(5), 12)
    assert words == "ranks 1 and 3 hold other weights than ranks 0, 2 and 4, found in step 12"


class Unit(ShardRanks):
    """The processes of a copy, of which two each hold the same."""

    def __init__(self) -> None:
        self.size, self.rank = 4, 0

    def gather(self, value: Any) -> list[Any]:
        return [value, "other", value, "other"]


def test_processes_that_hold_the_same_shards_are_compared() -> None:
    tested = WeightComparison(model(), Unit())
    assert tested.digest(3, size=1) != 0.0
    assert tested.find((), (1.0, 2.0, 1.0, 2.0), 3) == []
    (found,) = tested.find((), (1.0, 2.0, 1.0, 5.0), 4)
    assert found == "process 3 holds other weights than process 1, found in step 4"
    assert tested.find((), (1.0, 2.0, 1.0, 6.0), 5) == [], "each once"
    tested.forget()
    assert len(tested.find((3.0, 3.0, 4.0), (7.0, 2.0, 1.0, 6.0), 5)) == 3


def test_a_process_alone_computes_nothing() -> None:
    assert WeightComparison(model()).digest(3, size=1) == 0.0


@pytest.fixture(scope="module")
def factory() -> Iterator[TrainerFactory]:
    with TrainerFactory() as made:
        yield made


@pytest.mark.slow
@pytest.mark.worker_group("processes")
@pytest.mark.parametrize("mode", ["exact", "close"])
def test_a_flipped_bit_is_reported_by_every_rank(
    factory: TrainerFactory, tmp_path: Path, mode: str
) -> None:
    server = MembershipServer(Membership(silent_s=120.0, settle_s=120.0)).start()
    pids = []
    for trainer in range(3):
        env = {"COSTOPT_MEMBERSHIP": server.address, "WORLD_SIZE": "3", "LOCAL_RANK": "0"}
        env["COSTOPT_STATUS_FILE"] = str(tmp_path / f"status-{trainer}")
        options: dict[str, Any] = {"flip": FLIPPED_AT} if trainer == 1 else {}
        output = tmp_path / f"trainer-{trainer}"
        pids.append(factory.start(env, output=output, initial=True, mode=mode, **options))
    assert [factory.wait(pid) for pid in pids] == [0, 0, 0]
    server.close()
    for trainer in range(3):
        guarantee = result(tmp_path / f"trainer-{trainer}")["guarantee"]
        assert guarantee.startswith("close: ")
        assert "holds other weights than ranks" in guarantee
        assert guarantee.count("other weights") == 1, "it is said once"
        step = int(guarantee.split()[-1])
        assert FLIPPED_AT <= step < STEPS
        status = TrainerStatus.read(tmp_path / f"status-{trainer}")
        assert status is not None
        assert status.guarantee == guarantee
