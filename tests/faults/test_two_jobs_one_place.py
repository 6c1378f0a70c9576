"""A place that holds one job's checkpoints is not another job's, in any store and on any way in."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from costopt.agent.place_check import another_job_reason
from costopt.checkpoint.commit import Committer, SaveRequest
from costopt.checkpoint.history import CheckpointHistory, RetentionPolicy
from costopt.checkpoint.identity import ANOTHER_JOB, JobIdentity
from costopt.checkpoint.repository import KEY, CheckpointRepository
from costopt.domain.errors import CheckpointError
from costopt.protocol.messages import Gang
from costopt.train import Checkpointer, ShardedCheckpointer, StorageReader, StorageWriter, attach
from tests.support.errors import has_code
from tests.support.object_stores import served_gcs, served_s3

OURS = JobIdentity("acme", "research", "llama")
OTHERS = (
    replace(OURS, name="llama-copy"),
    replace(OURS, tenant="sales"),
    replace(OURS, owner="another"),
)


@pytest.fixture(scope="module")
def buckets() -> Iterator[dict[str, str]]:
    with served_s3("training") as (s3, _), served_gcs("training") as (gcs, _):
        yield {"AWS_ENDPOINT_URL_S3": s3, "STORAGE_EMULATOR_HOST": gcs}


@pytest.fixture(params=["folder", "s3", "gs"])
def uri(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "folder":
        return str(tmp_path / "checkpoints")
    for name, url in request.getfixturevalue("buckets").items():
        monkeypatch.setenv(name, url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return f"{request.param}://training/{zlib.crc32(request.node.name.encode())}"


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set the variables that a job's agent gives its trainer; those of None are not set."""

    def change(identity: JobIdentity | None) -> None:
        for name in ("COSTOPT_OWNER", "COSTOPT_TENANT", "COSTOPT_JOB"):
            monkeypatch.delenv(name, raising=False)
        for name, value in ({} if identity is None else identity.variables()).items():
            monkeypatch.setenv(name, value)

    return change


def state(step: int) -> dict[str, Any]:
    return {"step": step, "weights": torch.full((10,), float(step))}


def head(uri: str) -> bytes | None:
    return CheckpointRepository.open(uri).store.get(KEY)


def is_refused(call: Any) -> None:
    with pytest.raises(CheckpointError, check=has_code(ANOTHER_JOB)) as caught:
        call()
    assert caught.value.hint is not None
    assert "costopt checkpoints branch" in caught.value.hint


def test_the_same_job_resumes_and_another_one_is_refused(uri: str, become: Any) -> None:
    become(OURS)
    first = Checkpointer(uri)
    first.save(1, state(1))
    first.close()
    kept = head(uri)
    for other in OTHERS:
        become(other)
        is_refused(Checkpointer(uri).restore)
        is_refused(lambda: Checkpointer(uri).save(2, state(2)))
        is_refused(Checkpointer(uri).claim)
    assert head(uri) == kept
    assert [name.step for name in CheckpointRepository.open(uri).names()] == [1]
    become(OURS)
    restored = Checkpointer(uri).restore()
    assert restored is not None
    assert (restored.state["step"], restored.manifest.identity) == (1, OURS)


@pytest.mark.parametrize("damage", [b"cut short", None])
def test_damaged_and_missing_heads_let_no_other_job_in(
    uri: str, become: Any, damage: bytes
) -> None:
    become(OURS)
    Checkpointer(uri).save(1, state(1))
    store = CheckpointRepository.open(uri).store
    store.delete(KEY) if damage is None else store.put(KEY, damage)
    become(OTHERS[0])
    is_refused(Checkpointer(uri).restore)
    is_refused(lambda: Checkpointer(uri).save(2, state(2)))
    become(OURS)
    later = Checkpointer(uri)
    restored = later.restore()
    assert restored is not None
    later.save(2, state(2))


def test_checkpoints_of_before_are_of_the_first_job_that_saves(uri: str, become: Any) -> None:
    become(None)
    Checkpointer(uri).save(1, state(1))
    assert b"identity" not in (head(uri) or b"")
    become(OURS)
    ours = Checkpointer(uri)
    assert ours.restore() is not None
    ours.save(2, state(2))
    become(OTHERS[0])
    is_refused(Checkpointer(uri).restore)


def test_a_notebook_has_no_identity_and_leaves_that_of_the_job(uri: str, become: Any) -> None:
    become(OURS)
    Checkpointer(uri).save(1, state(1))
    become(None)
    notebook = Checkpointer(uri)
    assert notebook.restore() is not None
    notebook.save(2, state(2))
    become(OTHERS[0])
    is_refused(Checkpointer(uri).restore)


def test_a_checkpoint_is_read_by_its_name_on_purpose(uri: str, become: Any) -> None:
    become(OURS)
    name = Checkpointer(uri).save(1, state(1)).name
    become(OTHERS[0])
    other = Checkpointer(uri)
    assert other.load(name).state["step"] == 1
    is_refused(lambda: other.save(2, state(2)))


def test_sharded_checkpoints_are_refused_too(uri: str, become: Any) -> None:
    model = nn.Linear(4, 4)
    become(OURS)
    saver = ShardedCheckpointer(uri, model)
    saver.save(1)
    saver.close()
    become(OTHERS[0])
    other = ShardedCheckpointer(uri, model)
    is_refused(other.restore)
    is_refused(lambda: other.save(2))
    become(OURS)
    restored = ShardedCheckpointer(uri, model).restore()
    assert restored is not None
    assert restored.manifest.identity == OURS


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_the_storage_of_dcp_is_refused_too(uri: str, become: Any) -> None:
    weights = {"weights": torch.ones(4)}
    become(OURS)
    save(weights, storage_writer=StorageWriter(uri, step=1), no_dist=True)
    (name,) = CheckpointRepository.open(uri).names()
    become(OTHERS[0])
    with pytest.raises(CheckpointException, match=repr(OURS.name)):
        load(weights, storage_reader=StorageReader(uri), no_dist=True)
    with pytest.raises(CheckpointException, match=repr(OURS.name)):
        save(weights, storage_writer=StorageWriter(uri, step=2), no_dist=True)
    load(weights, storage_reader=StorageReader(uri, str(name)), no_dist=True)
    become(OURS)
    load(weights, storage_reader=StorageReader(uri), no_dist=True)


def test_attach_refuses_under_an_agent(uri: str, become: Any) -> None:
    def loop() -> Any:
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = torch.utils.data.TensorDataset(torch.ones(8, 2))
        return attach(
            model, optimizer, None, data, global_batch=2, virtual_shards=1, checkpoint=uri
        )

    become(OURS)
    Checkpointer(uri).save(1, state(1))
    become(OTHERS[0])
    is_refused(loop)


def gang(uri: str, identity: JobIdentity) -> Gang:
    return Gang(
        *(identity.name, 1, ("n",), ("python", "t.py"), "/", 0.0),
        checkpoint_uri=uri,
        owner=identity.owner,
        tenant=identity.tenant,
    )


def test_the_agent_starts_no_trainer_in_another_job_s_place(uri: str, become: Any) -> None:
    become(OURS)
    assert another_job_reason(gang(uri, OURS)) is None
    Checkpointer(uri).save(1, state(1))
    assert another_job_reason(gang(uri, OURS)) is None
    for other in OTHERS:
        reason = another_job_reason(gang(uri, other))
        assert reason is not None
        assert repr(OURS.name) in reason


def commit(place: CheckpointRepository, *steps: int) -> list[str]:
    by = Committer(place, 1)
    content = memoryview(b"weights")
    return [str(by.commit(SaveRequest(n, 1, 0.0, {"state.bin": content})).name) for n in steps]


def test_rollback_and_prune_are_for_the_job_and_leave_its_name(uri: str) -> None:
    names = commit(CheckpointRepository.open(uri, OURS), 1, 2, 3)
    other = CheckpointHistory.open(uri, OTHERS[0])
    is_refused(lambda: other.rollback(names[0]))
    is_refused(lambda: other.prune(RetentionPolicy(1), apply=True))
    # A job file names no owner: it stays as it was.
    history = CheckpointHistory.open(uri, replace(OURS, owner=""))
    history.rollback(names[1])
    history.prune(RetentionPolicy(1), apply=True)
    found = CheckpointRepository.open(uri).head()
    assert found is not None
    assert (found.identity, found.line) == (OURS, (names[1],))


def test_a_branch_is_another_job_s_start_on_purpose(uri: str, become: Any) -> None:
    become(OURS)
    name = Checkpointer(uri).save(1, state(1)).name
    copy = OTHERS[0]
    for target, identity in ((f"{uri}-copy", copy), (f"{uri}-free", None)):
        CheckpointHistory.open(uri).branch(name, target, identity)
        become(copy)
        trainer = Checkpointer(target)
        restored = trainer.restore()
        assert restored is not None
        assert restored.manifest.identity == identity
        trainer.save(2, state(2))
        become(OURS)
        is_refused(Checkpointer(target).restore)
