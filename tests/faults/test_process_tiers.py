"""Agents and trainers as they run: a crash, a notice that is too short, a gang on other nodes."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costopt.checkpoint.replicas import peer
from costopt.protocol.messages import Gang, NodeActivity
from tests.support.agent_fleet import AgentFleet
from tests.support.live_run import PATIENCE_S
from tests.support.node_folder import ROOT

UNITS = 10_000
SCRIPT = """\
import os, pathlib, resource, time
import torch
from torch import nn
from costopt.train import attach, checkpoint_manager
checkpoint_manager.MAX_FAILED_SAVES = 10**6
model = nn.Linear(1000, 1000)
nn.init.zeros_(model.bias)
job = attach(
    model,
    torch.optim.SGD(model.parameters(), lr=0.0),
    None,
    lambda step, shard: shard,
    global_batch=2,
    virtual_shards=2,
)
here = pathlib.Path(os.environ["COSTOPT_NODE"] + ".step")
checkpointer = job._saving._checkpointer
saved = pathlib.Path("saved")
for step in job.steps(10_000):
    time.sleep(0.04)
    for batch in job.microbatches():
        with job.microbatch(batch):
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter)
    with torch.no_grad():
        model.bias.add_(1.0)
    stored = any(pathlib.Path("ckpt").glob("step-*/manifest.json"))
    if checkpointer.writer_pid and stored:
        # The store takes no state any more, as if the upload never ended.
        saved.touch()
        resource.prlimit(checkpointer.writer_pid, resource.RLIMIT_FSIZE, (100_000, 100_000))
    job.apply()
    assert float(model.bias[0]) == job.step
    here.write_text(f"{job.step} {os.getpid()}")
"""
pytestmark = [
    pytest.mark.exhaustive("gangs of processes"),
    pytest.mark.skipif(sys.platform != "linux", reason="memory is shared by descriptors"),
]


class Fleet(AgentFleet):
    """Of a gang that saves near."""

    def form(self, generation: int, *members: str) -> None:
        self.mailbox.post_gang(
            Gang(
                "j",
                generation,
                members,
                ("python", "trainer.py"),
                str(self.folder),
                0.0,
                total_units=UNITS,
                checkpoint_uri=str(self.folder / "ckpt"),
                checkpoint_interval_s=0.3,
                zones=tuple(f"r/{name}" for name in members),
                across_zones=True,
                secret=f"secret-{generation}",
            )
        )

    def near_step(self, name: str) -> int:
        """The newest that the node's memory holds."""
        held = self.agents[name]._snapshots._tiers.memory.newest()
        return max((each.snapshot.manifest.step for each in held), default=0)

    def log(self, name: str) -> str:
        return "".join(p.read_text() for p in (self.folder / f"node-{name}").glob("trainer-*.log"))


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'providers'}")
    for limit in ("CONNECT_S", "IO_TIMEOUT_S", "PATIENCE_S"):
        monkeypatch.setattr(peer, limit, PATIENCE_S)  # a peer that is slow to answer is not gone
    # A trainer that is slow to stop is waited for, also beyond a notice's end.
    made = Fleet(tmp_path, SCRIPT, judge_s=0.2, grace_s=PATIENCE_S, handover_s=2.0)
    yield made
    # Else each saves on until its grace time ends, as the store takes nothing.
    for pid in (made.written(name)[1] for name in made.agents):
        if pid:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    made.close()


def test_a_crash_a_short_notice_and_other_nodes(fleet: Fleet) -> None:
    fleet.launch("n1")
    fleet.launch("n2")
    fleet.form(1, "n1", "n2")
    fleet.until((fleet.folder / "saved").exists, "a first checkpoint in the store")
    durable = fleet.step("n1")
    fleet.until(lambda: fleet.near_step("n1") > durable + 5, "a snapshot that is only near")
    fleet.until(lambda: fleet.near_step("n2") > durable + 5, "the peer has it too")

    near = fleet.near_step("n1")
    os.kill(fleet.written("n1")[1], signal.SIGKILL)
    ended = (NodeActivity.FAILED, NodeActivity.BROKEN)
    fleet.until(lambda: fleet.beat("n1").state in ended, "the trainer is gone")
    assert fleet.beat("n1").saved_units < near
    fleet.form(2, "n1", "n2")
    fleet.until(lambda: "from the memory of this node" in fleet.log("n1"), "restored from memory")
    assert int(fleet.log("n1").split("restored step ")[1].split()[0]) >= near
    fleet.until(lambda: fleet.step("n1") > near + 5, "it trains on")
    fleet.until(lambda: fleet.beat("n1").goodput is not None, "goodput is reported")
    at = datetime.now(UTC)
    end = at + timedelta(seconds=1.5)
    notice = {"action": "terminate", "noticed_at": at.isoformat(), "time": end.isoformat()}
    fleet.notice("n1").write_text(json.dumps(notice))
    fleet.until(lambda: fleet.beat("n1").state is NodeActivity.STOPPED, "it stops on the notice")
    assert "do not reach the store" in fleet.beat("n1").message
    assert "the memory of n2 (r/n2)" in fleet.beat("n1").message
    last = fleet.step("n1") + 1  # the script writes its step behind apply(), which ends it
    fleet.agents["n1"].request_exit()
    fleet.launch("n3")
    fleet.form(3, "n3", "n2")
    fleet.until(lambda: "from the memory of n2" in fleet.log("n3"), "restored from the peer")
    assert f"restored step {last} from the memory of n2" in fleet.log("n3")
    fleet.until(lambda: fleet.step("n3") > last, "it trains on elsewhere")
    fleet.until(lambda: fleet.step("n2") > last, "with a peer that has the same state")
