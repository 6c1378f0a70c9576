"""The demo of a cluster: a real daemon, some of its trainings, two nodes and spot."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from costopt.domain import events as ev
from costopt.ledger.base import open_ledger
from costopt.ledger.fold_cache import summaries
from tests.support.fleet_run import max_gpus_held
from tests.support.node_folder import ROOT, processes_under, variables

pytestmark = [
    pytest.mark.exhaustive("jobs on simulated nodes"),
    pytest.mark.slow,
    pytest.mark.process,
]

DEMO = ROOT / "examples" / "fleet" / "demo.py"
NODE_GPUS = 8
SHARE_OF_WORK, JOBS = 0.2, 5


def test_all_jobs_are_done_and_no_gpu_is_held_twice(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, str(DEMO), "--folder", str(folder)]
    command += ["--work", str(SHARE_OF_WORK), "--jobs", str(JOBS)]
    done = subprocess.run(command, env=variables(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not processes_under(folder), "a node that outlived its job"
    with open_ledger(folder / "state" / "ledger.sqlite", create=False) as ledger:
        events = [recorded.event for recorded in ledger.events()]
        found = {each.job: each for each in summaries(ledger, lambda _, at: at)}

    trainings = runpy.run_path(str(DEMO))["TRAININGS"][:JOBS]
    assert set(found) == {training.name for training in trainings}
    for training in trainings:
        steps = max(1, round(training.steps * SHARE_OF_WORK))
        assert found[training.name].done_units == steps
        assert found[training.name].finished_at is not None
        assert found[training.name].deadline_at is None

    launched = [each for each in events if isinstance(each, ev.NodeLaunched)]
    ended = {each.node_id: each for each in events if isinstance(each, ev.NodeEnded)}
    assert sorted(each.node_id for each in launched) == sorted(ended), "a node twice, or no end"
    most = max_gpus_held(events)
    assert set(most) == {"n0001", "n0002"}
    assert max(most.values()) <= NODE_GPUS, "a GPU twice"

    micros: dict[str, float] = defaultdict(float)
    for event in launched:
        hours = (ended[event.node_id].ended_at - event.launched_at).total_seconds() / 3600
        micros[event.job] += event.micros_per_hour * hours
    for name, summary in found.items():
        nodes_micros = summary.spot_usd_micros + summary.on_demand_usd_micros
        assert nodes_micros == pytest.approx(micros[name], abs=100), name
    assert (folder / "report.html").stat().st_size > 0
