"""A sweep of power limits by real agents: a controller is killed in it, and an agent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from costopt.domain.events import PowerLimitProbed, PowerLimitReported
from costopt.protocol.mailbox import Mailbox
from costopt.protocol.messages import Gang
from costopt.store.folder import FileStore
from tests.support import live_run
from tests.support.live_run import Place, wait_until
from tests.support.power_curves import QUADRO_RTX_6000, SPEED_FLOOR, best_energy, energy_at
from tests.support.swept_gpu import SweptGpu

pytestmark = [pytest.mark.process, pytest.mark.slow]

SPEED = 20
POLICY = """\
kind: policy
version: 1
name: frugal
strategy: adaptive
objective: {tolerance: 0.2, then: [kwh]}
limits: {power_caps: true, power_sweep: true}
"""
JOB = {
    "units_per_s: 0.05": "units_per_s: 1.0",
    "save: 10s, restore: 2m": "save: 1s, restore: 10s",
    "startup: 3m": "startup: 20s",
}


@pytest.fixture
def gpu(tmp_path: Path) -> SweptGpu:
    return SweptGpu(tmp_path / "gpu")


@pytest.fixture
def place(tmp_path: Path, gpu: SweptGpu, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A probe takes 6 s of the wall."""
    monkeypatch.setattr(live_run, "SPEED", SPEED)
    made = Place(
        tmp_path / "run",
        steps=20_000,
        deadline="6h30m",
        policy="frugal.yaml",
        run=gpu.trainer(SPEED),
        environment=gpu.environment,
    ).write()
    job = (made.folder / "job.yaml").read_text()
    for old, new in JOB.items():
        job = job.replace(old, new)
    (made.folder / "job.yaml").write_text(job)
    (made.folder / "frugal.yaml").write_text(POLICY)
    return made


def test_a_sweep_outlives_its_controller_and_the_next_plan_uses_it(
    place: Place, gpu: SweptGpu
) -> None:
    with place.controlled(clears=False):
        wait_until(lambda: len(place.of(PowerLimitProbed)) == 2, "a first limit")
        wait_until(lambda: gpu.is_limited, "a second one under way")
    probed = place.of(PowerLimitProbed)
    wait_until(lambda: not gpu.is_limited, "its end without a controller")
    with place.controlled():

        def planned() -> list[float]:
            limits = [e.cap_w for e in place.of(PowerLimitReported)[-1:] if e.cap_w is not None]
            swept = {e.cap_w for e in place.of(PowerLimitProbed)}
            return [cap_w for cap_w in limits if cap_w in swept]

        wait_until(lambda: bool(planned()), "a plan with a limit of the sweep")
    base, *limits = place.of(PowerLimitProbed)
    assert [base, *limits][:2] == probed
    assert len({e.generation for e in (base, *limits)}) == 1, "training went on"
    kept = [e.cap_w for e in limits if e.units_per_s >= SPEED_FLOOR * base.units_per_s]
    found = min(energy_at(QUADRO_RTX_6000, cap_w) for cap_w in kept)
    assert found <= 1.02 * best_energy(QUADRO_RTX_6000)
    assert all(float(call[-1]) >= 100 for call in gpu.tool.calls if "-pl" in call)


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[dict[str, tuple[SweptGpu, subprocess.Popen[bytes]]]]:
    """Two nodes, each with a GPU of its own."""
    with ExitStack() as stack:
        made = {}
        for name in ("n1", "n2"):
            gpu = SweptGpu(tmp_path / name)
            process = stack.enter_context(
                subprocess.Popen(
                    [
                        *(sys.executable, "-m", "costopt.agent", "--store", tmp_path / "store"),
                        *("--job", "j", "--node", name, "--folder", tmp_path / f"node-{name}"),
                        *("--notices", "none", "--launcher", "direct"),
                    ],
                    env={**os.environ, **gpu.environment},
                    process_group=0,
                )
            )
            stack.callback(process.kill)
            made[name] = gpu, process
        yield made


def test_an_agent_that_is_killed_in_a_probe_leaves_no_limit(
    tmp_path: Path, agents: dict[str, tuple[SweptGpu, subprocess.Popen[bytes]]]
) -> None:
    mailbox = Mailbox(FileStore(tmp_path / "store"), "j")
    gpus = [gpu for gpu, _ in agents.values()]
    command = tuple(gpus[0].trainer(10.0))
    gang = Gang(
        "j", 1, ("n1", "n2"), command, str(tmp_path), 0.0, probe=1, probe_cap_w=150.0, probe_s=600.0
    )
    mailbox.post_gang(gang)
    wait_until(lambda: all(gpu.is_limited for gpu in gpus), "both nodes limited")
    os.killpg(agents["n1"][1].pid, signal.SIGKILL)
    wait_until(lambda: gpus[0].tool.limits_w == [260.0], "the limit of the killed agent's GPU")
    assert gpus[1].is_limited
    mailbox.post_gang(replace(gang, probe=0))
    wait_until(lambda: gpus[1].tool.limits_w == [260.0], "the limit of a probe that is withdrawn")
