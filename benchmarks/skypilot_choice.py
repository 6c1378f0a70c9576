"""The one choice that SkyPilot's optimizer also makes, side by side: where to run one task.

SkyPilot picks the candidate with the least price × estimated run time; prices stand still and
nothing is interrupted, so costopt is asked the same: one node, no start-up, no saves, constant
prices, no hazard, a far deadline, dollars alone. The interpreter that has SkyPilot is named by the
environment variable SKYPILOT_PYTHON.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.fleet_instance import NOW, instance
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.job import CheckpointSpec, Job, Phase, Resources
from costopt.domain.policy import Objective, Policy, Risk
from costopt.optimize.planner import plan
from costopt.optimize.request import PlanRequest

CANDIDATES = (100, 1000)
SCRIPT = Path(__file__).parent / "skypilot_optimizer.py"


def run() -> Iterator[tuple[str, float, str]]:
    """Dollars and seconds of both answers; prints why where SkyPilot does not answer."""
    interpreter = os.environ.get("SKYPILOT_PYTHON")
    if interpreter is None:
        print("  skypilot not installed: not compared (SKYPILOT_PYTHON names its interpreter)")
        return
    for count in CANDIDATES:
        request = _request(count)
        theirs = _skypilot(interpreter, request)
        if theirs is None:
            print("  skypilot not installed: not compared")
            return
        began = time.perf_counter()
        made = plan(request, explain=False)
        seconds = time.perf_counter() - began
        pools = sorted({str(allocation.pool) for allocation in made.allocations})
        same = pools == [theirs["name"]]
        print(f"  {count} candidates, SkyPilot {theirs['version']}: {theirs['name']}")
        print(f"  {count} candidates, costopt: {', '.join(pools)}")
        usd = made.objective_usd
        yield f"{count} candidates, SkyPilot's answer", theirs["usd"], "$"
        yield f"{count} candidates, costopt's answer", float("nan") if usd is None else usd, "$"
        yield f"{count} candidates, the same candidate", float(same), "(1: yes)"
        yield f"{count} candidates, SkyPilot", theirs["seconds"], "s"
        yield f"{count} candidates, costopt", seconds, "s"


def _skypilot(interpreter: str, request: PlanRequest) -> dict[str, Any] | None:
    """Its answer; it may write to a home folder, so it gets one of its own."""
    job = request.jobs[0].job
    candidates = []
    for offer in request.offers:
        speed = job.gang_units_per_s(request.machines[offer.pool], 1)
        assert speed is not None
        assert offer.price_usd_per_hour is not None
        usd_per_hour, run_s = offer.price_usd_per_hour.value, job.work.amount / speed.value
        candidates.append({"name": str(offer.pool), "usd_per_hour": usd_per_hour, "run_s": run_s})
    with tempfile.TemporaryDirectory() as home:
        try:
            done = subprocess.run(
                [interpreter, str(SCRIPT)],
                input=json.dumps(candidates),
                capture_output=True,
                text=True,
                env=os.environ | {"HOME": home, "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"},
                check=False,
            )
        except OSError as error:
            print(f"  {interpreter}: {error.strerror}")
            return None
    if done.returncode != 0:
        print(f"  {interpreter}: {(done.stderr.strip().splitlines() or ['no answer'])[-1]}")
        return None
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _request(count: int) -> PlanRequest:
    made_up = instance(count, slots=24, jobs=1)
    calm = Estimate.exact(0.0, Basis.MODELLED, "no hazard, as SkyPilot's optimizer takes it")
    view = made_up.jobs[0]
    return replace(
        made_up,
        jobs=(replace(view, job=_task(view.job)),),
        offers=tuple(
            replace(offer, hazard_per_hour=calm, nodes_available=None) for offer in made_up.offers
        ),
        policy=Policy("dollars", Objective(), Risk(on_time=0.5, reserve_s=0.0)),
        quotas=(),
        price_forecasts={},
        carbon_forecasts={},
    )


def _task(job: Job) -> Job:
    return replace(
        job,
        deadline_at=NOW + timedelta(days=365),
        resources=Resources(),
        checkpoint=CheckpointSpec("file:///none", 0.0, 0.0, 0.0),
        phases=(Phase("train", 1.0, 1, 1),),
        startup_s=0.0,
    )
