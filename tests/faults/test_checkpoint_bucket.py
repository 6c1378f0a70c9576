"""Checkpoints in S3, through the process that writes them: whole, verified, fenced, refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from costopt.checkpoint.repository import CheckpointRepository
from costopt.domain.errors import CheckpointError
from costopt.train.checkpointer import Checkpointer
from costopt.train.save_queue import FailedSave
from tests.support.object_stores import Unreliable, served_s3


@pytest.fixture
def uri(request: pytest.FixtureRequest) -> str:
    """A place of its own: the fake's buckets outlive its servers."""
    return f"s3://training/{request.node.name}"


@pytest.fixture
def front(monkeypatch: pytest.MonkeyPatch) -> Iterator[Unreliable]:
    with served_s3("training") as (url, served):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        yield served


def state(step: int) -> dict[str, object]:
    return {"step": step, "weights": torch.full((3_000_000,), float(step))}


def test_a_bucket_holds_checkpoints_as_a_folder_does(front: Unreliable, uri: str) -> None:
    checkpointer = Checkpointer(uri, keep=2, generation=1)
    for step in (1, 2, 3):
        assert checkpointer.begin(step, state(step), overlap=True)
        checkpointer.copied()
        (outcome,) = checkpointer.wait()
        assert not isinstance(outcome, FailedSave), outcome
        assert outcome.uri == f"{uri}/step-00000000{step}.1.0"
    place = CheckpointRepository.open(uri)
    assert [name.step for name in place.names()] == [3, 2]
    place.store.put("step-000000003.1.0/tensors-00000.bin", b"x" * 12_000_000)
    later = Checkpointer(uri, generation=2)
    restored = later.restore()
    assert restored is not None
    assert torch.equal(restored.state["weights"], torch.full((3_000_000,), 2.0))
    assert [refused.name for refused in later.refused] == ["step-000000003.1.0"]
    later.claim()
    with pytest.raises(CheckpointError, match=r"generation 2\b"):
        checkpointer.save(4, state(4))
    later.save(4, state(4))


def test_requests_that_fail_or_lose_their_reply_are_repeated(front: Unreliable, uri: str) -> None:
    checkpointer = Checkpointer(uri)
    checkpointer.save(1, state(1))
    front.refuse(503, "SlowDown", times=2)
    front.lost_replies = 2
    checkpointer.save(2, state(2))
    restored = Checkpointer(uri).restore()
    assert restored is not None
    assert restored.state["step"] == 2


def test_a_bucket_that_refuses_is_named_with_the_remedy(front: Unreliable, uri: str) -> None:
    checkpointer = Checkpointer(uri)
    checkpointer.save(1, state(1))
    front.refuse(403, "AccessDenied", times=50)
    with pytest.raises(CheckpointError, match="AccessDenied") as caught:
        checkpointer.save(2, state(2))
    assert caught.value.hint is not None
    front.refusals.clear()
    restored = Checkpointer(uri).restore()
    assert restored is not None
    assert restored.state["step"] == 1
