"""Sharded state near: a step that all ranks took is restored by any mesh, without the store."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.faults.test_sharded_checkpointer import run
from tests.support.near_nodes import NearNodes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is shared by descriptors")


@pytest.mark.slow
@pytest.mark.xdist_group("processes")
def test_a_lost_step_comes_from_memory_and_peers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = NearNodes(4, alive=3)
    monkeypatch.setenv("TEST_NEAR", " ".join(nodes.addresses))
    ranks = run(
        tmp_path,
        "fsdp4,train:2,save,train:1,lost,note",
        "fsdp4,near",
        "fsdp3,near,train:1,save,note",
        "fsdp3,near",
    )
    nodes.close()
    lost, same, other, trained, stored = ranks[0]
    # Of a whole mesh each rank needs but small tensors of others, of another mesh whole shards.
    assert same == f"{lost} 3 memory 0 -"
    assert other == f"{lost} 3 peer 0 -"
    assert stored.startswith(f"{trained} 4 ")
    assert stored.endswith(" 0 step-000000004.0.1")
    assert all(noted[1].endswith(" 0 -") for noted in ranks)
