"""The examples for other loops train, save, and go on from what they saved."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from costopt.train import Checkpointer
from tests.support import forked_commands
from tests.support.forked_commands import TRAINERS, ForkedCommand
from tests.support.reserved_port import reserved_port

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
TIMEOUT_S = 600.0

pytestmark = pytest.mark.worker_group("processes")


def run(folder: Path, script: str, steps: int, size: int = 1) -> str:
    """What rank 0 of so many processes printed."""
    with ExitStack() as stack:
        base = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "providers")]),
            "OMP_NUM_THREADS": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(stack.enter_context(reserved_port())),
            "WORLD_SIZE": str(size),
        }
        command = [str(EXAMPLES / script), f"--steps={steps}", f"--checkpoint={folder / 'c'}"]
        processes: list[ForkedCommand] = []
        for rank in range(size):
            own = base | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            process = ForkedCommand(command, folder, own, TRAINERS)
            processes.append(stack.enter_context(process))
            stack.callback(process.kill)
        said = [process.communicate(timeout=TIMEOUT_S) for process in processes]
    assert all(process.returncode == 0 for process in processes), said
    return said[0][0]


def test_a_plain_loop_goes_on(tmp_path: Path) -> None:
    assert "the result is exact" in run(tmp_path, "torchrun/train.py", 10, size=2)
    assert "done after 20 steps; the result is exact" in run(tmp_path, "torchrun/train.py", 20)
    restored = Checkpointer(tmp_path / "c").restore()
    assert restored is not None
    assert "0.weight" in restored.state["parts"]["model"]


def test_ddp_saves_from_rank_0(tmp_path: Path) -> None:
    assert "saved step 25" in run(tmp_path, "adapters/torchrun_ddp.py", 26, size=2)


DDP_LEFT = """
import gc, runpy, sys
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
end = dist.destroy_process_group
def check():
    print("left:", sum(type(each) is DistributedDataParallel for each in gc.get_objects()))
    end()
dist.destroy_process_group = check
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


def test_ddp_ends_before_its_process_group(tmp_path: Path) -> None:
    """Its reducer would end gloo's threads while it holds the interpreter's lock."""
    with reserved_port() as port:
        alone = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "1"}
        script = ["-c", DDP_LEFT, str(EXAMPLES / "adapters/torchrun_ddp.py")]
        words = [*script, "--steps=1", f"--checkpoint={tmp_path / 'c'}"]
        own = os.environ | {"PYTHONPATH": str(ROOT), "RANK": "0", **alone}
        done = forked_commands.run(words, tmp_path, own, TIMEOUT_S, TRAINERS)
    assert (done.returncode, done.stdout) == (0, "saved step 1\nleft: 0\n"), done.stderr


def test_a_sharded_model_is_resharded(tmp_path: Path) -> None:
    assert "saved step 10 of 2 processes" in run(tmp_path, "adapters/fsdp2.py", 10, size=2)
    said = run(tmp_path, "adapters/fsdp2.py", 12)
    assert "begins at step 10" in said
    assert "saved step 12 of 1 processes" in said


@pytest.mark.parametrize(
    "script", ["hugging_face/train.py", "adapters/torchrun_ddp.py", "adapters/fsdp2.py"]
)
def test_an_example_runs_without_torchrun(script: str, tmp_path: Path) -> None:
    if script == "hugging_face/train.py":
        pytest.importorskip("transformers")
    alone = {n: v for n, v in os.environ.items() if n not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    alone |= {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "providers")])}
    for steps in (2, 3):
        words = [str(EXAMPLES / script), f"--steps={steps}", f"--checkpoint={tmp_path / 'c'}"]
        done = forked_commands.run(words, tmp_path, alone, TIMEOUT_S, TRAINERS)
        assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("c/step-*3.*")), list(tmp_path.glob("c/*"))
