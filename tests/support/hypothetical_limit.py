"""What the limits ``max_gpus: 4`` and ``zones: [us-east-1b]`` do, as JSON.

Run by tests/unit/test_limits_table.py, in a copy of costopt whose Limits has both.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from costopt.daemon.pages.guards import limits_block
from costopt.domain.control import Submission
from costopt.domain.events import GuardTripped
from costopt.domain.job import Resources
from costopt.domain.policy import LIMIT_SPECS, Limits, Policy
from costopt.domain.progress import Progress
from costopt.domain.view import JobView, Target
from costopt.market.screening import screen_offers
from costopt.optimize.demand import remaining_demand
from costopt.optimize.enumerate import TableEnumerator
from costopt.optimize.limits import shared_limits
from costopt.optimize.planner import plan
from costopt.optimize.request import PlanRequest
from costopt.spec import load_policy
from costopt.spec.load import policy_schema
from tests.support import engine_fixtures as engine
from tests.support import optimize_fixtures as optimizer
from tests.support.daemon_pages import JOB

POLICY = "name: p\nlimits: {max_gpus: 4, zones: [us-east-1b]}\n"


def limits(**values: Any) -> Limits:
    """Limits with fields that mypy does not know."""
    return Limits(**values)


def plans() -> dict[str, Any]:
    """A job that can have 2 to 8 GPUs, two that need 4 each, and one that needs 8."""
    pool = optimizer.pool()
    machine = optimizer.machine(gpus=2)
    request = PlanRequest(
        now=optimizer.NOW,
        jobs=(job_view("a", 1, 4),),
        offers=(optimizer.offer(pool, 2.0),),
        machines={pool: machine},
        powers={pool: optimizer.power()},
        policy=Policy("p", limits=limits(max_gpus=4)),
    )
    two = replace(request, jobs=(job_view("a", 2, 4), job_view("b", 2, 4)))
    together = plan(two)
    (shared,) = shared_limits(request)
    demand = remaining_demand(request.jobs[0], optimizer.NOW, 0.0)
    assert demand is not None
    return {
        "sizes": sorted(set(TableEnumerator(request).table(demand)[0].nodes.tolist())),
        "infeasible": plan(replace(request, jobs=(job_view("a", 4, 4),))).binding,
        "shared": [shared.name, shared.most, shared.resource.unit],
        "starts": len({each.start_at for each in together.allocations}),
        "constraints": [each.name for each in together.constraints],
    }


def job_view(name: str, least: int, most: int) -> JobView:
    resources = Resources(min_nodes=least, max_nodes=most)
    points = (("A100", 4, 1.0), ("A100", 8, 2.0))
    job = optimizer.job(8.0, name=name, deadline_h=48.0, resources=resources, points=points)
    return JobView(job, Progress())


def runs() -> dict[str, Any]:
    """Two jobs whose nodes of one GPU each the engine is asked for: 3 and 2."""
    scene = engine.Scene(
        engine.always(engine.SPOT_A, 9, 2.0),
        jobs=[engine.task(nodes=(1, 3), name="one"), engine.task(nodes=(1, 3), name="two")],
        policy=engine.rules("greedy_spot", limits=limits(max_gpus=4)),
        strategy=engine.Follow(
            one=(Target(engine.SPOT_A, 3),),
            two=(Target(engine.SPOT_A, 2),),
        ),
    )
    scene.tick()
    return {
        "nodes": [len(scene.living(job)) for job in ("one", "two")],
        "guards": [each.guard for each in scene.events(GuardTripped, "two")],
    }


def files() -> dict[str, Any]:
    """The policy file, its schema and the page of a job that follows it."""
    policy = load_policy_text(POLICY)
    known = policy_schema()["$defs"]["LimitsSection"]["properties"]
    submission = Submission("a", "t", 0, JOB, POLICY, "/srv", optimizer.NOW, "me")
    table = limits_block(submission).table
    offers = [optimizer.offer(pool, 1.0) for pool in (engine.SPOT_A, engine.SPOT_B)]
    usable, rejections = screen_offers(offers, policy, optimizer.NOW + timedelta(minutes=1))
    tighter = policy.limits.tightened(limits(max_gpus=2))
    return {
        "limits": [getattr(policy.limits, name) for name in ("max_gpus", "zones")],
        "tighter": [tighter.maximum(LIMIT_SPECS["max_gpus"]), list(tighter.loosened_by(Limits()))],
        "schema": {name: known[name] for name in ("max_gpus", "zones")},
        "page": [[column.text(row) for column in table.columns] for row in table.rows],
        "usable": [str(each.pool) for each in usable],
        "rejected": [[str(each.pool), each.code, each.reason] for each in rejections],
    }


def load_policy_text(text: str) -> Policy:
    with TemporaryDirectory() as folder:
        path = Path(folder, "policy.yaml")
        path.write_text(text, encoding="utf-8")
        return load_policy(path)


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"plans": plans(), "runs": runs(), "files": files()}))
