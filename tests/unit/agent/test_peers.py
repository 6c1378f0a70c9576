"""Who is alive is reported by heartbeats that change, not by clocks."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from costopt.agent.launch_spec import TORCHRUN, LaunchMethod, process_specs
from costopt.agent.peers import PeerMonitor
from costopt.protocol.mailbox import Mailbox
from costopt.protocol.messages import Gang, Heartbeat, NodeActivity, Rendezvous
from costopt.protocol.trainer_files import TrainerEnv
from costopt.store.folder import FileStore

GANG = Gang("j", 3, ("a", "b"), ("python", "t.py", "--x"), "/w", formed_at=0.0, env=(("K", "v"),))


def beat(mailbox: Mailbox, number: int, state: NodeActivity = NodeActivity.TRAINING) -> None:
    mailbox.post_heartbeat(Heartbeat("b", 3, state, at=0.0, beat=number))


def test_a_peer_that_stops_beating_is_lost(tmp_path: Path) -> None:
    mailbox = Mailbox(FileStore(tmp_path), "j")
    peers = PeerMonitor(mailbox, ("b",))
    peers.poll()
    assert peers.lost(since=time.monotonic()) is None, "never heard: still booting"
    beat(mailbox, 1)
    peers.poll()
    heard_at = time.monotonic()
    peers.poll()
    assert peers.lost(since=heard_at) == "no heartbeat from b"
    beat(mailbox, 2)
    peers.poll()
    assert peers.lost(since=heard_at) is None
    beat(mailbox, 3, NodeActivity.GONE)
    peers.poll()
    assert peers.lost(since=0.0) == "b has left"


def test_torchrun_is_reported_everything_and_its_workers_are_tied() -> None:
    (spec,) = process_specs(
        GANG,
        "b",
        Rendezvous(3, "10.0.0.1", 4711),
        launcher=LaunchMethod.TORCHRUN,
        processes=4,
    )
    words = " ".join(spec.command)
    for part in (
        "--nnodes=2 --node-rank=1 --nproc-per-node=4",
        "--master-addr=10.0.0.1 --master-port=4711 --max-restarts=0",
        "exit_with_parent.py 0 ",
        "-u t.py --x",
    ):
        assert part in words
    assert spec.variables == (("K", "v"),)


def test_other_commands_get_the_variables_themselves() -> None:
    gang = Gang("j", 1, ("a",), ("./run.sh",), "/w", formed_at=0.0)
    (spec,) = process_specs(
        gang,
        "a",
        Rendezvous(1, "h", 1),
        launcher=LaunchMethod.TORCHRUN,
        processes=1,
    )
    assert spec.command[-1] == "./run.sh"
    assert TORCHRUN not in spec.command
    assert dict(spec.variables) == {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "h",
        "MASTER_PORT": "1",
    }


def test_a_gang_of_one_process_needs_no_torchrun() -> None:
    alone = Gang("j", 1, ("a",), ("python", "t.py"), "/w", formed_at=0.0)
    for processes, under_torchrun in ((1, False), (2, True)):
        (spec,) = process_specs(
            alone,
            "a",
            Rendezvous(1, "h", 1),
            launcher=LaunchMethod.TORCHRUN,
            processes=processes,
        )
        assert (TORCHRUN in spec.command) is under_torchrun
        assert ("WORLD_SIZE", "1") in spec.variables or under_torchrun


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("torchrun t.py --x", "-u t.py --x"),
        ("torchrun --standalone --nproc-per-node=8 t.py --x", "-u t.py --x"),
        ("/opt/pytorch/bin/torchrun --nproc_per_node auto --nnodes 2 t.py --x", "-u t.py --x"),
        ("torchrun -m pkg.train --x", "-u -m pkg.train --x"),
        ("python -m torch.distributed.run --nnodes=2 t.py --x", "-u t.py --x"),
    ],
)
def test_torchruns_own_numbers_are_those_of_the_gang(command: str, script: str) -> None:
    gang = replace(GANG, command=tuple(command.split()))
    for processes in (1, 4):
        (spec,) = process_specs(
            gang,
            "b",
            Rendezvous(3, "10.0.0.1", 4711),
            launcher=LaunchMethod.TORCHRUN,
            processes=processes,
        )
        words = " ".join(spec.command)
        assert f"--nnodes=2 --node-rank=1 --nproc-per-node={processes}" in words
        assert words.endswith(script)
        assert "--standalone" not in words


def test_a_program_under_torchrun_is_not_a_script() -> None:
    for words in (("torchrun", "--no-python", "./run.sh"), ("torchrun", "--standalone")):
        (spec,) = process_specs(
            replace(GANG, members=("a",), command=words),
            "a",
            Rendezvous(1, "h", 1),
            launcher=LaunchMethod.TORCHRUN,
            processes=1,
        )
        assert spec.command == (("./run.sh",) if "--no-python" in words else words)


def test_processes_of_an_elastic_gang_are_started_one_by_one() -> None:
    gang = replace(GANG, elastic=True)
    specs = process_specs(
        gang,
        "b",
        Rendezvous(3, "h", 1),
        launcher=LaunchMethod.TORCHRUN,
        processes=2,
    )
    assert [dict(spec.variables)["RANK"] for spec in specs] == ["2", "3"]
    assert [dict(spec.variables)["LOCAL_RANK"] for spec in specs] == ["0", "1"]
    assert {dict(spec.variables)["WORLD_SIZE"] for spec in specs} == {"4"}
    assert {spec.script for spec in specs} == {("t.py", "--x")}


def test_the_trainers_of_a_node_hold_a_copy_of_a_sharded_model() -> None:
    gang = replace(GANG, elastic=True, is_sharded=True)
    (spec,) = process_specs(
        gang,
        "b",
        Rendezvous(3, "h", 4711),
        launcher=LaunchMethod.DIRECT,
        processes=2,
    )
    words = " ".join(spec.command)
    assert "--nnodes=1 --node-rank=0 --nproc-per-node=2 --master-addr=h --master-port=4711" in words
    command = replace(gang, command=("./train.sh",))
    (spec,) = process_specs(
        command, "b", Rendezvous(3, "h", 1), launcher=LaunchMethod.DIRECT, processes=2
    )
    found = dict(spec.variables)
    assert (found["RANK"], found["WORLD_SIZE"]) == ("0", "1")


def test_the_trainers_environment_makes_the_round_trip() -> None:
    env = TrainerEnv(
        *("j", "n", 4, Path("/n"), Path("/s"), "/c", 60.0, 0.25, 0.5, 360.0),
        total_units=1200.0,
        data_dir=Path("/d"),
        upload_bytes_per_s=1e9,
    )
    assert TrainerEnv.read(env.variables()) == env
    assert TrainerEnv.read(TrainerEnv().variables()) == TrainerEnv()
    assert TrainerEnv.read({}) == TrainerEnv()
