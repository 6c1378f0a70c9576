"""Ceph's gateway, a real service that speaks S3 and is not Amazon's, holds HEAD and claims."""

from __future__ import annotations

import pytest

from costopt.checkpoint.commit import Committer, SaveRequest, SupersededError
from costopt.checkpoint.repository import CheckpointRepository
from costopt.store import open_store
from costopt.store.guarantees import broken_guarantees
from tests.support.ceph import KEY, SECRET
from tests.support.store_races import check_races

pytestmark = pytest.mark.slow
PLACE = "s3://training"


@pytest.fixture(autouse=True)
def gateway(ceph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", ceph)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "us-east-1")


def test_it_lacks_nothing() -> None:
    assert broken_guarantees(open_store(f"{PLACE}/check")) == ()


def test_one_of_many_writers_wins_each_race() -> None:
    check_races(open_store(f"{PLACE}/races"))


def test_it_holds_checkpoints() -> None:
    def save(by: Committer, step: int) -> str:
        content = memoryview(bytes([step]) * (20 << 20))
        return str(by.commit(SaveRequest(step, 1, 0.0, {"state.bin": content})).name)

    place = CheckpointRepository.open(f"{PLACE}/saves")
    old = Committer(place, 1)
    names = [save(old, step) for step in (1, 2)]
    new = Committer(CheckpointRepository.open(f"{PLACE}/saves"), 2)
    names.append(save(new, 3))
    with pytest.raises(SupersededError):
        save(old, 4)
    head = place.head()
    assert head is not None
    assert list(head.line) == names[::-1]
